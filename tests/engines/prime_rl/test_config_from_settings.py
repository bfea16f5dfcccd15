"""Our settings as Prime-RL's TOML: each of them is carried over, or refused or remarked by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tbtui.config import ConfigError, RunConfig, parse_settings, settings
from tbtui.config.toml import toml_text
from tbtui.engines.prime_rl.config_checks import prime_rl_problems
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN, prime_rl_config
from tbtui.resources import tasks_dir as bundled_tasks

from .known_keys import unknown_keys

ENOUGH = ["model_name=Qwen/Qwen3-8B", "tasks_dir=/tasks"]

OTHERS: dict[str, tuple[str, ...]] = {
    "num_train_gpus": ("num_train_gpus=2",),
    "num_infer_gpus": ("num_infer_gpus=3",),
    "model_name": ("model_name=Qwen/Qwen3-4B",),
    "checkpoint": ("checkpoint=/runs/a/checkpoints/step_50",),
    "lora_rank": ("lora_rank=8",),
    "context_limit": ("context_limit=16384",),
    "tokenizer": ("tokenizer=Qwen/Qwen3-8B-Base",),
    "renderer": ("renderer=qwen3",),
    "thinking": ("thinking=strip",),
    "tasks_dir": ("tasks_dir=/others",),
    "eval_split": ("eval_split=0.5",),
    "tasks": ("tasks=a,b",),
    "eval_tasks": ("eval_tasks=a,b",),
    "max_steps": ("max_steps=30",),
    "batch_size": ("batch_size=5",),
    "group_size": ("group_size=6",),
    "seed": ("seed=7",),
    "max_steps_off_policy": ("max_steps_off_policy=3",),
    "learning_rate": ("learning_rate=1e-5",),
    "lr_schedule": ("lr_schedule=cosine",),
    "warmup_steps": ("warmup_steps=5",),
    "remove_constant_reward_groups": ("remove_constant_reward_groups=true",),
    "grad_clip": ("grad_clip=0",),
    "max_retries": ("max_retries=1",),
    "eval_every": ("eval_every=20",),
    "eval_group_size": ("eval_group_size=4",),
    "eval_temperature": ("eval_temperature=0.5",),
    "max_turns": ("max_turns=30",),
    "max_tokens": ("max_tokens=2048",),
    "temperature": ("temperature=0.7",),
    "enable_summarize": ("enable_summarize=true",),
    "proactive_summarization_threshold": (
        "enable_summarize=true",
        "proactive_summarization_threshold=6000",
    ),
    "trial_timeout_sec": ("trial_timeout_sec=600",),
    "environment_type": ("environment_type=docker",),
    "environment_kwargs": ("environment_kwargs.cpus=2",),
    "force_build": ("force_build=true",),
    "n_parallel_envs": ("n_parallel_envs=32",),
    "env_starts_per_sec": ("env_starts_per_sec=0.5",),
    "n_workers": ("n_workers=4",),
    "logs_dir": ("logs_dir=/logs",),
    "run_name": ("run_name=monday",),
    "keep": ("keep=failed",),
    "save_every": ("save_every=5",),
    "keep_checkpoints": ("keep_checkpoints=0",),
    "wandb_project": ("wandb_project=tb",),
    "wandb_name": ("wandb_project=tb", "wandb_name=monday"),
}
"""For each setting that Prime-RL carries, what asks for another value than the default."""

WITHOUT_A_PLACE: dict[str, str] = {
    "policy": "policy=tinker",
    "tinker_base_url": "tinker_base_url=http://a",
    "vllm_base_url": "vllm_base_url=http://a",
    "openai_base_url": "openai_base_url=http://a",
    "value_rollouts_per_step": "value_rollouts_per_step=8",
    "value_rollouts_per_turn": "value_rollouts_per_turn=2",
    "group_from": "group_from=fork",
    "fork_groups_per_step": "fork_groups_per_step=3",
    "demos": "demos=train",
    "demo_weight": "demo_weight=2",
    "demos_per_step": "demos_per_step=4",
    "train_after_handback": "train_after_handback=true",
    "checkpoint_ttl_hours": "checkpoint_ttl_hours=3",
    "lora_alpha": "lora_alpha=64",
    "lora_targets": "lora_targets=q_proj",
    "dtype": "dtype=fp32",
    "train_device": "train_device=cpu",
    "micro_batch_tokens": "micro_batch_tokens=1024",
    "gradient_checkpointing": "gradient_checkpointing=false",
    "sampler": "sampler=vllm",
    "vllm_devices": "vllm_devices=1",
    "policy_restarts": "policy_restarts=3",
    "agent": "agent=oracle",
    "snapshots": "snapshots=turns",
    "snapshot_mb": "snapshot_mb=16",
    "keep_snapshots": "keep_snapshots=true",
    "fork_from": "fork_from=runs/a/trial@2",
    "fork_go_on": "fork_go_on=true",
    "agent_kwargs": "agent_kwargs.version=1",
    "agent_install": "agent_install=true",
    "agent_setup_network": "agent_setup_network=true",
    "endpoint_public_url": "endpoint_public_url=http://a:{port}",
    "endpoint_port": "endpoint_port=9000",
    "n_epochs": "n_epochs=2",
    "num_substeps": "num_substeps=2",
    "stream": "stream=true",
    "loss_fn": "loss_fn=importance_sampling",
    "advantage": "advantage=std",
    "normalize_advantages_by_std": "normalize_advantages_by_std=true",
    "loss_normalizer": "loss_normalizer=trial",
    "replace_constant_groups": "replace_constant_groups=2",
    "screen_trials": "screen_trials=3",
    "kl_penalty_coef": "kl_penalty_coef=0.1",
    "importance_cap": "importance_cap=2",
    "dro_beta": "dro_beta=0.1",
    "overlong_penalty": "overlong_penalty=0.1",
    "overlong_buffer": "overlong_buffer=10",
    "turn_penalty": "turn_penalty=0.1",
    "train_summaries": "train_summaries=false",
    "train_abandoned_calls": "train_abandoned_calls=true",
    "tool_format": "tool_format=json",
    "clip_low": "clip_low=0.1",
    "clip_high": "clip_high=0.1",
    "min_group": "min_group=3",
    "short_groups": "short_groups=drop",
    "on_outcome": "on_outcome.timeout=mask",
    "review": "review=always",
    "review_rules": "review_rules=/rules.toml",
    "review_timeout_sec": "review_timeout_sec=60",
    "at_review_timeout": "at_review_timeout=accept",
    "retry_wait_sec": "retry_wait_sec=2",
    "halt_after": "halt_after=3",
    "unfit_tasks": "unfit_tasks=try",
    "honeypots": "honeypots=0.02",
    "oracle_tasks": "oracle_tasks=a",
    "quarantine": "quarantine=ignore",
    "max_unusable": "max_unusable=1",
    "check_zeros": "check_zeros=never",
    "kill_before_verifying": "kill_before_verifying=always",
    "fixed_programs": "fixed_programs=always",
    "sample_timeout_sec": "sample_timeout_sec=60",
    "worker_max_mb": "worker_max_mb=100",
    "worker_max_trials": "worker_max_trials=100",
    "step_deadline_sec": "step_deadline_sec=60",
    "at_deadline": "at_deadline=mask",
    "oversample": "oversample=1",
    "oversample_keep": "oversample_keep=first_finished",
    "on_alarm": "on_alarm.stale=halt",
    "prices": "prices.prompt=1",
    "max_cost": "max_cost=5",
    "budget": "budget.hours=5",
    "task_sampling": "task_sampling=thompson",
    "task_floor": "task_floor=0.5",
    "task_half_life": "task_half_life=5",
    "pace_sec": "pace_sec=1",
    "tensorboard": "tensorboard=true",
    "trackio_project": "trackio_project=tb",
}


def config_of(*arguments: str) -> RunConfig:
    given = [argument.partition("=")[0] for argument in arguments]
    base = [each for each in ENOUGH if each.partition("=")[0] not in given]
    return parse_settings([*base, *arguments])


def with_everything() -> RunConfig:
    """Every setting that has a place, at another value than its default."""
    names = [name for name in OTHERS if name != "eval_split"]  # eval_tasks replaces it
    return config_of(*dict.fromkeys(argument for name in names for argument in OTHERS[name]))


def at(document: Any, key: str) -> Any:
    """The value under a dotted name; `[]` is the first of a list of tables."""
    for step in key.split("."):
        name = step.removesuffix("[]")
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name][0] if step.endswith("[]") else document[name]
    return document


def test_every_mapping_is_tested_below() -> None:
    mappings = {name: setting.prime_rl for name, setting in settings().items()}
    assert set(OTHERS) == {name for name, mapping in mappings.items() if mapping.keys}
    assert set(WITHOUT_A_PLACE) == {
        name for name, mapping in mappings.items() if not (mapping.keys or mapping.ours)
    }


@pytest.mark.parametrize("name", OTHERS)
def test_a_setting_with_a_place_is_found_there(name: str) -> None:
    plain = prime_rl_config(config_of(*OTHERS[name][:-1]))
    asked = prime_rl_config(config_of(*OTHERS[name]))
    keys = settings()[name].prime_rl.keys
    assert [key for key in keys if at(plain, key) != at(asked, key)] == list(keys)


@pytest.mark.parametrize("name", WITHOUT_A_PLACE)
def test_a_setting_without_one_is_refused_or_remarked_by_name(name: str) -> None:
    config = config_of(WITHOUT_A_PLACE[name])
    told = [p for p in prime_rl_problems(config) if p.text.startswith((f"{name}:", f"{name}="))]
    assert told
    assert settings()[name].prime_rl.level in [problem.level for problem in told]
    if any(problem.level == "error" for problem in told):
        with pytest.raises(ConfigError):
            prime_rl_config(config)


def test_what_prime_rl_does_anyway_may_be_asked_for() -> None:
    config = config_of("num_substeps=1", "stream=false", "advantage=centred", "oversample=0")
    assert not [problem for problem in prime_rl_problems(config) if problem.level == "error"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["group_size=32"], "n_parallel_envs=16: Prime-RL runs the group_size=32 trials"),
        (["max_steps=0"], "max_steps=0: Prime-RL doesn't only evaluate"),
        (["temperature=3"], "temperature=3: Prime-RL takes 2 at most"),
        (["eval_temperature=3"], "eval_temperature=3: Prime-RL takes 2 at most"),
        (["lora_rank=1024"], "lora_rank=1024: vLLM serves adapters of rank 512 at most"),
        (["checkpoint=runs/a"], "checkpoint=runs/a: Prime-RL goes on from a checkpoint of its own"),
        (["renderer=cookbook:qwen3"], "renderer=cookbook:qwen3: Prime-RL has renderers of its own"),
        (["thinking=off"], "thinking=off: only some of Prime-RL's renderers"),
        (
            ["context_limit=96", "max_tokens=96"],
            "max_tokens=96: nothing of the context of 96 tokens",
        ),
        (["context_limit=4000", "enable_summarize=true"], "enable_summarize=true: the context"),
        (["env_starts_per_sec=0.01"], "env_starts_per_sec=0.01: Prime-RL's lowest limit is one"),
        (["renderer=template", "thinking=keep"], "thinking=keep: the chat template alone decides"),
        (["environment_kwargs.a=[null]"], "environment_kwargs: TOML has no null"),
        (["warmup_steps=40"], "warmup_steps=40: the learning rate would still be rising"),
        (["wandb_name=a"], "wandb_name: nothing is logged to wandb without wandb_project"),
    ],
)
def test_what_prime_rl_can_not_do_is_one_line(arguments: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prime_rl_config(config_of(*arguments))
    assert str(refused.value).startswith(complaint)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("missing", "name"), [(0, "model_name"), (1, "tasks_dir")])
def test_model_and_tasks_have_to_be_named(missing: int, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: name "):
        prime_rl_config(parse_settings([ENOUGH[1 - missing]]))


def test_defaults_are_those_of_a_thinking_model() -> None:
    config = config_of("engine=prime-rl")
    assert (config.learning_rate, config.max_turns, config.max_tokens) == (1e-5, 32, 8192)
    texts = [problem.text for problem in prime_rl_problems(config)]
    assert texts == ["context_limit: not given, so sequences may have 32768 tokens (seq_len)"]
    assert prime_rl_problems(config_of("engine=prime-rl", "context_limit=8192")) == []
    given = ("engine=prime-rl", "context_limit=8192", "max_tokens=512")
    (small,) = prime_rl_problems(config_of(*given))
    assert small.text.startswith("max_tokens=512: a model that thinks")


def test_an_evaluation_that_misses_the_last_step_is_remarked() -> None:
    texts = [problem.text for problem in prime_rl_problems(config_of("max_steps=25"))]
    assert any(text.startswith("eval_every=10: ") and "max_steps=25" in text for text in texts)


def test_the_batch_is_counted_in_trials() -> None:
    orchestrator = prime_rl_config(config_of("batch_size=3", "group_size=5"))["orchestrator"]
    assert (orchestrator["batch_size"], orchestrator["group_size"]) == (15, 5)


@pytest.mark.parametrize(
    ("arguments", "schedule"),
    [
        (["lr_schedule=constant"], {"type": "constant"}),
        (
            ["lr_schedule=constant", "warmup_steps=4"],
            {"type": "linear", "warmup_steps": 4, "decay_steps": 0},
        ),
        (
            ["lr_schedule=linear", "warmup_steps=4", "max_steps=20"],
            {"type": "linear", "warmup_steps": 4, "decay_steps": 16},
        ),
        (["lr_schedule=cosine"], {"type": "cosine", "warmup_steps": 0}),
    ],
)
def test_the_learning_rate_rises_and_falls_as_ours(
    arguments: list[str], schedule: dict[str, Any]
) -> None:
    assert prime_rl_config(config_of(*arguments))["trainer"]["scheduler"] == schedule


def test_held_out_tasks_are_evaluated_and_not_trained_on() -> None:
    document = prime_rl_config(config_of("eval_tasks=a,b"))
    train = at(document, "orchestrator.train.source[].env.taskset")
    heldout = at(document, "orchestrator.eval.source[].env.taskset")
    assert (train["split"], train["exclude"]) == ("train", ["a", "b"])
    assert (heldout["split"], heldout["tasks"]) == ("all", ["a", "b"])
    assert "eval" not in prime_rl_config(config_of("eval_split=0"))["orchestrator"]


def test_paths_hold_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    document = prime_rl_config(config_of("tasks_dir=tasks", "model_name=weights"))
    assert at(document, "orchestrator.train.source[].env.taskset.tasks_dir") == str(
        tmp_path / "tasks"
    )
    assert document["model"]["name"] == str(tmp_path / "weights")
    assert document["orchestrator"]["renderer"]["name"] == "default"
    assert document["output_dir"] == str(tmp_path / "runs")


def test_the_file_says_the_same_as_the_tables() -> None:
    document = prime_rl_config(with_everything())
    assert tomllib.loads(toml_text(document)) == document
    assert list(unknown_keys(document)) == []
    assert at(document, "orchestrator.train.source[].env.agent.harness.id") == PLUGIN


def test_chosen_tasks_are_written_by_name(tmp_path: Path) -> None:
    config = config_of("tasks=copy-0[12],move-01", f"tasks_dir={bundled_tasks() / 'starter'}")
    (train,) = prime_rl_config(config)["orchestrator"]["train"]["source"]
    assert train["env"]["taskset"]["tasks"] == ["copy-01", "copy-02", "move-01"]
    (held_out,) = prime_rl_config(config)["orchestrator"]["eval"]["source"]
    assert "tasks" not in held_out["env"]["taskset"]
    with pytest.raises(ConfigError, match="does not exist"):
        prime_rl_config(config_of("tasks=copy-*", f"tasks_dir={tmp_path / 'none'}"))
