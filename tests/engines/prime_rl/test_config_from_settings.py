"""Our settings as Prime-RL's TOML: each of them is carried over, or refused or remarked by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from tbtui.config import ConfigError, RunConfig, parse_settings, settings
from tbtui.config.toml import toml_text
from tbtui.engines.prime_rl.config_checks import prime_rl_problems
from tbtui.engines.prime_rl.settings_table import SETTINGS
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN, prime_rl_config
from tbtui.resources import tasks_dir as bundled_tasks

from .known_keys import unknown_keys

ENOUGH = ["model_name=Qwen/Qwen3-8B", "tasks_dir=/tasks"]

WITH_A_PLACE = [name for name, mapping in SETTINGS.items() if mapping.keys]
WITHOUT_A_PLACE = [name for name, mapping in SETTINGS.items() if not (mapping.keys or mapping.ours)]

PARTICULAR: dict[str, str] = {
    "checkpoint": "checkpoint=/runs/a/checkpoints/step_50",
    "context_limit": "context_limit=16384",
    "eval_split": "eval_split=0.5",
    "eval_temperature": "eval_temperature=0.5",
    "temperature": "temperature=0.7",
    "honeypots": "honeypots=0.02",
    "wandb_project": "wandb_project=tb",
    "environment_kwargs": "environment_kwargs.cpus=2",
    "agent_kwargs": "agent_kwargs.version=1",
    "on_outcome": "on_outcome.timeout=mask",
    "on_alarm": "on_alarm.stale=halt",
    "prices": "prices.prompt=1",
    "budget": "budget.hours=5",
    "reward_weights": "reward_weights.quality=-0.5",
    "warmup_steps": "warmup_steps=5",
    "max_tokens": "max_tokens=2048",
    "n_parallel_envs": "n_parallel_envs=32",
    "proactive_summarization_threshold": "proactive_summarization_threshold=6000",
    "endpoint_public_url": "endpoint_public_url=http://a:{port}",
    "fork_from": "fork_from=runs/a/trial@2",
}
"""What asks for another value of settings that not just any value fits."""
TOGETHER = {
    "proactive_summarization_threshold": "enable_summarize=true",
    "wandb_name": "wandb_project=tb",
}
"""What else a setting needs."""


def other(name: str) -> str:
    """An argument that asks for another value than the default."""
    row = settings()[name]
    if name in PARTICULAR:
        return PARTICULAR[name]
    match row.kind:
        case "switch":
            value = str(not row.default).lower()
        case "choice":
            value = next(each for each in get_args(row.base) if each != row.default)
        case "integer" | "number":
            start = row.default or 0
            value = next(
                str(v) for v in (start + 2, start / 2, 0.5) if row.allows(v) and v != row.default
            )
        case "text" if name.endswith("_url"):
            value = "http://a"
        case _:
            value = "/elsewhere" if row.kind == "path" else "a"
    return f"{name}={value}"


def others(name: str) -> list[str]:
    return [*([TOGETHER[name]] if name in TOGETHER else []), other(name)]


def config_of(*arguments: str) -> RunConfig:
    given = [argument.partition("=")[0] for argument in arguments]
    base = [each for each in ENOUGH if each.partition("=")[0] not in given]
    return parse_settings([*base, *arguments])


def with_everything() -> RunConfig:
    """Every setting that has a place, at another value than its default."""
    # These are replaced by others: eval_tasks and reward_weights.
    names = [name for name in WITH_A_PLACE if name not in ("eval_split", "reward_key")]
    return config_of(*dict.fromkeys(argument for name in names for argument in others(name)))


def at(document: Any, key: str) -> Any:
    """The value under a dotted name; `[]` is the first of a list of tables."""
    for step in key.split("."):
        name = step.removesuffix("[]")
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name][0] if step.endswith("[]") else document[name]
    return document


def test_no_setting_is_forgotten() -> None:
    assert list(SETTINGS) == list(settings())


@pytest.mark.parametrize("name", WITH_A_PLACE)
def test_a_setting_with_a_place_is_found_there(name: str) -> None:
    arguments = others(name)
    plain = prime_rl_config(config_of(*arguments[:-1]))
    asked = prime_rl_config(config_of(*arguments))
    keys = SETTINGS[name].keys
    assert [key for key in keys if at(plain, key) != at(asked, key)] == list(keys)


@pytest.mark.parametrize("name", WITHOUT_A_PLACE)
def test_a_setting_without_one_is_refused_or_remarked_by_name(name: str) -> None:
    config = config_of(other(name))
    told = [p for p in prime_rl_problems(config) if p.text.startswith((f"{name}:", f"{name}="))]
    assert told
    assert SETTINGS[name].level in [problem.level for problem in told]
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
