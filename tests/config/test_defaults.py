"""Defaults follow the model, its server and the environment, and the settings given win."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tbtui.commands.explain import print_explanation
from tbtui.config import parse_settings, to_toml
from tbtui.engines.grpo.config_checks import grpo_problems, unsupported
from tbtui.policies.base import PolicyInfo

QWEN = ("policy=tinker", "model_name=Qwen/Qwen3-8B")
README = (*QWEN, "tasks_dir=tasks/workshop", "context_limit=32768")


def test_the_readmes_tinker_command_gives_a_thinking_model_room() -> None:
    config = parse_settings(README)
    assert (config.max_tokens, config.max_turns) == (8192, 32)
    assert (config.save_every, config.learning_rate) == (1, 4e-5)
    assert config.given == {"policy", "model_name", "tasks_dir", "context_limit"}
    assert grpo_problems(config) == []


@pytest.mark.parametrize(
    ("arguments", "tokens", "turns"),
    [
        ((), 96, 6),
        ((*QWEN, "max_tokens=4096"), 4096, 32),
        ((*QWEN, "context_limit=16384"), 4096, 32),
        ((*QWEN, "max_tokens=default"), 8192, 32),
        ((*QWEN, "renderer=embedded"), 96, 6),
        (("policy=tinker", "tinker_base_url=http://a"), 96, 6),
        (("policy=vllm", "model_name=Qwen/Qwen3-8B"), 8192, 32),
        (("engine=prime-rl", "model_name=Qwen/Qwen3-8B"), 8192, 32),
    ],
)
def test_limits_of_a_trial_follow_the_model(
    arguments: tuple[str, ...], tokens: int, turns: int
) -> None:
    config = parse_settings(arguments)
    assert (config.max_tokens, config.max_turns) == (tokens, turns)


@pytest.mark.parametrize(
    ("environment", "rate"),
    [("daytona", 1.0), ("e2b", 1.0), ("sandbox", 0.0), ("docker", 0.0), ("my_module:Cloud", 0.0)],
)
def test_environments_of_a_service_start_slowly(environment: str, rate: float) -> None:
    assert parse_settings([f"environment_type={environment}"]).env_starts_per_sec == rate
    given = parse_settings([f"environment_type={environment}", "env_starts_per_sec=7"])
    assert given.env_starts_per_sec == 7


def test_a_file_that_spells_a_value_out_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('policy = "tinker"\nmodel_name = "Qwen/Qwen3-8B"\nmax_tokens = 96\n')
    config = parse_settings([str(file)])
    assert (config.max_tokens, config.max_turns) == (96, 32)
    assert "max_tokens" in config.given
    # What is in force is written, and read back as the same.
    file.write_text(to_toml(config))
    again = parse_settings([str(file)])
    assert to_toml(again) == to_toml(config)
    assert again.given - {"max_steps"} == {"policy", "model_name", "max_tokens"}


def test_too_little_room_to_think_is_remarked() -> None:
    short = parse_settings([*QWEN, "max_tokens=96"])
    qwen = PolicyInfo("tinker", "Qwen/Qwen3-8B", None, 32768, ("importance_sampling",), thinks=True)
    (problem,) = unsupported(short, qwen)
    assert problem.level == "warning"
    assert problem.text.startswith("max_tokens=96: a model that thinks is often cut off")
    # Whether a model thinks is known by its chat template, and not before that has been read.
    assert not grpo_problems(short) and not unsupported(short, replace(qwen, thinks=False))
    unknown = parse_settings(["policy=openai", "model_name=m", "max_steps=0", "max_tokens=96"])
    assert [problem.text] == [each.text for each in grpo_problems(unknown)]


@pytest.mark.linux
def test_the_source_of_a_default_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(parse_settings([*QWEN, "tasks_dir=starter", "max_turns=9"]))
    said = capsys.readouterr().out
    assert "  max_tokens=8192          room for reasoning and an answer, as tinker-cookbook" in said
    assert "  save_every=1 " in said
    assert "max_turns=" not in said


@pytest.mark.parametrize(
    ("arguments", "policy", "rate"),
    [
        (("model_name=Qwen/Qwen3-0.6B",), "torch", 4e-5),
        (("model_name=Qwen/Qwen3-0.6B", "lora_rank=0"), "torch", 1e-6),
        (("model_name=Qwen/Qwen3-0.6B", "policy=vllm"), "vllm", 2e-4),
        (("model_name=Qwen/Qwen3-0.6B", "tinker_base_url=http://a"), "local", 2e-4),
        (("model_name=Qwen/Qwen3-0.6B", "engine=prime-rl"), "local", 1e-5),
        (("model_name=other",), "local", 2e-4),
        ((), "local", 2e-4),
    ],
)
def test_a_models_name_says_where_it_runs(
    arguments: tuple[str, ...], policy: str, rate: float
) -> None:
    config = parse_settings(arguments)
    assert (config.policy, config.learning_rate) == (policy, rate)
    assert ("policy" in config.given) == ("policy=vllm" in arguments)


@pytest.mark.parametrize(
    ("arguments", "tasks", "turns"),
    [
        (("model_name=maze",), Path("maze"), 12),
        (("model_name=maze", "tasks_dir=starter", "max_turns=3"), Path("starter"), 3),
        (("model_name=maze", "policy=tinker"), None, 6),
        (("model_name=maze", "engine=prime-rl"), None, 32),
        ((), None, 6),
    ],
)
def test_an_embedded_model_brings_its_tasks(
    arguments: tuple[str, ...], tasks: Path | None, turns: int
) -> None:
    config = parse_settings(arguments)
    assert (config.tasks_dir, config.max_turns) == (tasks, turns)


def test_a_directory_is_a_model_to_train(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    file = tmp_path / "run.toml"
    config = parse_settings([f"model_name={tmp_path}/mine"])
    assert config.policy == "torch"
    file.write_text(to_toml(config))
    again = parse_settings([str(file)])
    assert again.policy == "torch"
    assert "policy" not in again.given
    assert again.max_tokens == 8192
    (tmp_path / "mine/config.json").write_text('{"text_config": {"max_position_embeddings": 8192}}')
    assert parse_settings([f"model_name={tmp_path}/mine"]).max_tokens == 2048
    (error, *_) = [
        each.text
        for each in grpo_problems(
            parse_settings([f"model_name={tmp_path}/mine", "max_tokens=9999"])
        )
        if "max_tokens" in each.text
    ]
    assert error.endswith("leave it out, or give max_tokens=2048")
