"""Files of earlier Prime-RL: everything is carried over or named."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tbtui.config import ConfigError, parse_settings
from tbtui.config.toml import toml_text
from tbtui.engines.prime_rl.migrate import migrate
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN, prime_rl_config

SEED = """
inference_gpu_ids = [0]
trainer_gpu_ids = [1, 2]
max_steps = 200
max_async_level = 2
output_dir = "outputs/tb"
[wandb]
project = "tb"
name = "tb-lora"
[model]
name = "Qwen/Qwen3-8B"
[ckpt]
interval = 20
keep = 3
resume_step = 40
[trainer.model.experimental.lora]
rank = 32
alpha = 64
[trainer.optim]
lr = 1e-5
[orchestrator]
batch_size = 32
rollouts_per_example = 4
seq_len = 32768
max_concurrent = 32
[orchestrator.sampling]
max_tokens = 2048
temperature = 0.7
[[orchestrator.env]]
id = "src.harbor_env"
name = "harbor"
[orchestrator.env.args]
tasks_dir = "tasks"
environment_type = "docker"
max_turns = "none"
n_parallel_envs = 16
enable_summarize = true
proactive_summarization_threshold = 6000
vllm_base_url = "http://localhost:8000/v1"
model_name = "Qwen/Qwen3-8B"
trial_timeout_sec = 600.0
trials_dir = "/trials"
model_info = { max_tokens = 32768, max_input_tokens = 32768, max_output_tokens = 32768 }
[inference]
gpu_memory_utilization = 0.6
enable_lora = true
[inference.model]
tool_call_parser = "hermes"
[inference.parallel]
tp = 1
"""

TODAY: dict[str, Any] = {
    "max_steps": 200,
    "output_dir": "outputs/tb",
    "seq_len": 32768,
    "model": {"name": "Qwen/Qwen3-8B"},
    "monitors": {"wandb": {"project": "tb", "name": "tb-lora"}},
    "ckpt": {"interval": 20, "keep_last": 3},
    "resume": {"step": 40},
    "trainer": {"model": {"lora": {"rank": 32, "alpha": 64}}, "optim": {"lr": 1e-5}},
    "orchestrator": {
        "batch_size": 32,
        "group_size": 4,
        "max_off_policy_steps": 2,
        "concurrency": {"max_inflight": 32},
        "train": {
            "sampling": {"temperature": 0.7, "max_completion_tokens": 2048},
            "source": [
                {
                    "name": "harbor",
                    "env": {
                        "taskset": {"id": PLUGIN, "tasks_dir": "tasks"},
                        "agent": {
                            "runtime": {"type": "subprocess"},
                            "harness": {
                                "id": PLUGIN,
                                "environment_type": "docker",
                                "n_parallel_envs": 16,
                                "enable_summarize": True,
                                "proactive_summarization_threshold": 6000,
                                "trial_timeout_sec": 600.0,
                                "trials_dir": "/trials",
                                "context_limit": 32768,
                                "max_tokens": 2048,
                            },
                        },
                    },
                }
            ],
        },
    },
    "inference": {
        "vllm": {
            "gpu_memory_utilization": 0.6,
            "enable_lora": True,
            "tool_call_parser": "hermes",
            "tensor_parallel_size": 1,
        }
    },
    "deployment": {"num_train_gpus": 2, "num_infer_gpus": 1, "gpus_per_node": 3},
}


def names(toml: dict[str, Any], where: str = "") -> set[str]:
    """The dotted names of all values."""
    found = set()
    for key, value in toml.items():
        if isinstance(value, dict):
            found |= names(value, f"{where}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:
                found |= names(each, f"{where}{key}[].")
        else:
            found.add(where + key)
    return found


def test_the_seeds_file_becomes_todays() -> None:
    toml, changes = migrate(tomllib.loads(SEED))
    assert toml == TODAY
    lines = [str(change) for change in changes]
    assert "orchestrator.rollouts_per_example -> orchestrator.group_size: renamed" in lines
    assert any(
        line.startswith("orchestrator.env[].args.vllm_base_url -> (gone): ") for line in lines
    )
    assert all("\n" not in line for line in lines)


def test_no_key_is_lost_without_a_word() -> None:
    before = tomllib.loads(SEED)
    toml, changes = migrate(before)
    told = [change.old for change in changes]
    for name in names(before) - names(toml):
        assert any(f"{name}.".startswith((f"{each}.", f"{each}[].")) for each in told), name
    for change in changes:
        if change.new is not None and change.new != "resume":
            assert any(name.startswith(change.new) for name in names(toml)), change


def test_a_key_that_moves_twice_is_one_line() -> None:
    _, changes = migrate(tomllib.loads(SEED))
    [line] = [str(change) for change in changes if change.old == "orchestrator.sampling.max_tokens"]
    assert line == (
        "orchestrator.sampling.max_tokens -> orchestrator.train.sampling.max_completion_tokens:"
        " what is about training stands together; renamed"
    )


def test_what_is_migrated_needs_it_no_more() -> None:
    toml, _ = migrate(tomllib.loads(SEED))
    assert migrate(toml) == (toml, [])
    assert migrate(tomllib.loads(toml_text(toml))) == (toml, [])


def test_todays_files_come_back_as_they_are() -> None:
    toml = prime_rl_config(parse_settings(["model_name=Qwen/Qwen3-8B", "tasks_dir=/tasks"]))
    del toml["orchestrator"]["concurrency"]  # without it Prime-RL has a limit of its own
    assert migrate(toml) == (toml, [])


def test_what_is_gone_says_what_to_do_instead() -> None:
    old = """
    [orchestrator]
    batch_size = 32
    oversampling_factor = 1.5
    filters = []
    [orchestrator.env_mix]
    probabilities = [0.2, 0.8]
    """
    _, changes = migrate(tomllib.loads(old))
    lines = {change.old: str(change) for change in changes}
    assert "give orchestrator.concurrency.max_inflight" in lines["orchestrator.oversampling_factor"]
    assert "source.curriculum.gates" in lines["orchestrator.filters"]
    assert "each source has its own ratio" in lines["orchestrator.env_mix.probabilities"]


def test_unknown_keys_stay() -> None:
    old = {
        "odd": 1,
        "orchestrator": {"odder": {"a": 1}, "env": [{"id": "harbor_env", "oddest": 2}]},
        "inference": {"vllm": {"max_num_seqs": 3}},
    }
    toml, changes = migrate(old)
    assert toml["odd"] == 1
    assert toml["orchestrator"]["odder"] == {"a": 1}
    assert toml["orchestrator"]["train"]["source"][0]["oddest"] == 2
    assert {change.old for change in changes} == {"orchestrator.env", "orchestrator.env[].id"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ckpt.resume_step = -1", "[ckpt]\n[resume]"),
        ("[trainer.ckpt]\nresume_step = 3", "[trainer.ckpt]\n[resume]\nstep = 3"),
        ("max_model_len = 9", "seq_len = 9"),
        ("orchestrator.seq_len = 1024", "orchestrator.seq_len = 1024"),
        (
            "orchestrator.seq_len = 4096\ntrainer.model.seq_len = 8192",
            "orchestrator.seq_len = 4096\ntrainer.model.seq_len = 8192",
        ),
        (
            "orchestrator.max_async_level = 2\norchestrator.max_off_policy_steps = 5",
            "orchestrator.max_off_policy_steps = 5",
        ),
        (
            "orchestrator.batch_size = 32\norchestrator.oversampling_factor = 1.5",
            "orchestrator.batch_size = 32",
        ),
        ("[orchestrator]\nmax_concurrent = -1", "[orchestrator]"),
        ("[orchestrator.buffer]\nseed = 1", "[orchestrator]"),
        (
            "orchestrator.buffer.online_difficulty_filtering = true",
            "orchestrator.train.filter_zero_advantages = true",
        ),
        ("orchestrator.eval.eval_base_model = false", "orchestrator.eval.skip_first_step = true"),
        (
            'orchestrator.client.base_url = ["http://a/v1"]\norchestrator.client.timeout = 3',
            'orchestrator.model.client.base_url = "http://a/v1"',
        ),
        ("[wandb]", "[monitors.wandb]"),
        (
            "wandb.offline = true",
            "monitors.wandb.offline = true",
        ),
        ('trainer.model.attn = "sdpa"', "[trainer.model]"),
        (
            '[[orchestrator.train.env]]\ntaskset = { id = "gsm8k" }\nnum_workers = 2\n'
            'harness = { id = "null", runtime = { type = "subprocess" } }',
            "[[orchestrator.train.source]]\n"
            'env.taskset.id = "gsm8k"\nenv.agent.harness.id = "null"\n'
            'env.agent.runtime.type = "subprocess"\n'
            'serve.pool = { type = "static", num_workers = 2 }',
        ),
        (
            '[[orchestrator.env]]\nid = "a"\nargs.b = 1\n[[orchestrator.env]]\nid = "c"\n'
            "[orchestrator.env_mix]\nprobabilities = [0.2, 0.8]",
            '[[orchestrator.train.source]]\nenv.taskset = { id = "a", b = 1 }\n'
            '[[orchestrator.train.source]]\nenv.taskset.id = "c"',
        ),
        (
            '[[orchestrator.eval.env]]\nid = "a"\nrollouts_per_example = 4\nskip_first = 2\n'
            "sampling.max_tokens = 9",
            "[[orchestrator.eval.source]]\ngroup_size = 4\n"
            'env.taskset.id = "a"\nsampling.max_completion_tokens = 9',
        ),
    ],
)
def test_each_old_key_has_its_place(old: str, new: str) -> None:
    toml, changes = migrate(tomllib.loads(old))
    assert toml == tomllib.loads(new)
    assert bool(changes) == (old != new)
    assert migrate(toml) == (toml, [])


@pytest.mark.parametrize(
    ("old", "complaint"),
    [
        ("orchestrator = 3", "orchestrator: should be a table"),
        ("orchestrator.env = 3", "orchestrator.env: should be a list of tables"),
        ("trainer_gpu_ids = 2", "trainer_gpu_ids=2: should be a list of numbers"),
        ('ckpt.resume_step = "last"', "ckpt.resume_step=last: should be a whole number"),
        (
            'orchestrator.client.base_url = ["a", "b"]',
            "orchestrator.model.client.base_url=['a', 'b']: Prime-RL takes one address today",
        ),
    ],
)
def test_values_that_can_not_be_moved_are_one_line(old: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        migrate(tomllib.loads(old))
    assert str(refused.value).startswith(complaint)
