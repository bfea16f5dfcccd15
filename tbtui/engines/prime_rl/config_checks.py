"""Checks of the settings for Prime-RL: what it can't do, or does otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tbtui.config import RunConfig, default_of, to_json
from tbtui.config.values import Problem, error, errors_first, warning
from tbtui.engines.config_checks import common_problems, context_problems
from tbtui.engines.prime_rl.settings_table import SETTINGS
from tbtui.invocation import to_type

ASSUMED_CONTEXT = 32768
"""Tokens of a training sequence where no `context_limit` is given; Prime-RL itself would take 2048
and cut off the rest."""
LARGEST_RANK = 512
"""vLLM serves no larger adapter."""
HOTTEST = 2.0
"""The highest temperature that Prime-RL samples at."""
_PRIME_RL_CHECKPOINT = re.compile(r"step_\d+")


def prime_rl_problems(config: RunConfig) -> list[Problem]:
    """What of the settings Prime-RL can't do, or does otherwise. The errors come first."""
    problems = [
        *common_problems(config),
        *_unmapped(config),
        *_model_problems(config),
        *_length_problems(config),
        *_batch_problems(config),
        *_other_problems(config),
    ]
    return errors_first(problems)


def _unmapped(config: RunConfig) -> Iterator[Problem]:
    """Settings that were given and have no place in Prime-RL's file."""
    values = to_json(config)
    for name, mapping in SETTINGS.items():
        value = values[name]
        asked = name in config.given or getattr(config, name) != default_of(name, values)
        if mapping.keys or mapping.ours or not asked or value in mapping.anyway:
            continue
        shown = name if isinstance(value, dict) else f"{name}={_shown(value)}"
        yield Problem(mapping.level, f"{shown}: {mapping.why_not}")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model_problems(config: RunConfig) -> Iterator[Problem]:
    if "model_name" not in config.given:
        yield error(
            "model_name: name the model that Prime-RL trains, such as Qwen/Qwen3-8B, or its"
            " directory"
        )
    if config.lora_rank == 0:
        yield error("lora_rank=0: tbtui has Prime-RL train an adapter; give a rank of at least 1")
    if config.lora_rank > LARGEST_RANK:
        yield error(
            f"lora_rank={config.lora_rank}: vLLM serves adapters of rank {LARGEST_RANK} at most"
        )
    if config.checkpoint is not None and not _PRIME_RL_CHECKPOINT.fullmatch(
        Path(config.checkpoint).name
    ):
        yield error(
            f"checkpoint={config.checkpoint}: Prime-RL goes on from a checkpoint of its own"
            " (.../checkpoints/step_N); to start from other weights give their directory as"
            " model_name"
        )
    if config.renderer == "embedded" or ":" in config.renderer:
        yield error(
            f"renderer={config.renderer}: Prime-RL has renderers of its own; give the name of one,"
            " template for the model's chat template, or nothing"
        )
    elif is_directory(config) and "renderer" not in config.given:
        yield warning(
            f"renderer: Prime-RL chooses none for a model in a directory ({config.model_name}), so"
            " its chat template is used; give the name of one of its renderers where it has one"
        )
    if config.thinking == "keep" and "thinking" in config.given and chat_template_renders(config):
        yield error(
            "thinking=keep: the chat template alone decides what stays of earlier turns; name one"
            " of Prime-RL's renderers, or leave it out"
        )
    if config.thinking == "off":
        yield error(
            "thinking=off: only some of Prime-RL's renderers can do that; leave it out and set"
            " enable_thinking in [orchestrator.renderer] of the file"
        )


def _length_problems(config: RunConfig) -> Iterator[Problem]:
    if config.context_limit is None:
        yield warning(
            f"context_limit: not given, so sequences may have {ASSUMED_CONTEXT} tokens (seq_len)"
        )
    yield from context_problems(config, context_of(config))


def _batch_problems(config: RunConfig) -> Iterator[Problem]:
    if config.max_steps == 0:
        yield error(
            "max_steps=0: Prime-RL doesn't only evaluate; a model on a server is evaluated by"
            f" `{to_type('eval', 'policy=vllm', f'model_name={config.model_name}')}`"
        )
    if config.n_parallel_envs < config.group_size:
        yield error(
            f"n_parallel_envs={config.n_parallel_envs}: Prime-RL runs the group_size="
            f"{config.group_size} trials of a group at once; give at least as many"
        )
    if config.temperature > HOTTEST:
        yield error(f"temperature={config.temperature:g}: Prime-RL takes {HOTTEST:g} at most")
    if config.eval_temperature > HOTTEST:
        yield error(
            f"eval_temperature={config.eval_temperature:g}: Prime-RL takes {HOTTEST:g} at most"
        )
    if (
        evaluates(config)
        and config.max_steps
        and config.eval_every
        and config.max_steps % config.eval_every
    ):
        yield warning(
            f"eval_every={config.eval_every}: Prime-RL evaluates every so many steps, and so not"
            f" after the last of max_steps={config.max_steps}"
        )


def _other_problems(config: RunConfig) -> Iterator[Problem]:
    if config.tasks_dir is None:
        yield error(
            "tasks_dir: name a directory of Harbor tasks; the starter tasks are made for the"
            " embedded model"
        )
    if "seed" in config.given:
        yield warning(
            f"seed={config.seed}: decides which tasks are held out and what vLLM draws; Prime-RL"
            " has no seed for the order of tasks"
        )
    if 0 < config.env_starts_per_sec < 1 / 60:
        yield error(
            f"env_starts_per_sec={config.env_starts_per_sec:g}: Prime-RL's lowest limit is one"
            " trial a minute (0.0167)"
        )
    if _has_null(config.environment_kwargs):
        yield error("environment_kwargs: TOML has no null; leave such entries out")


def _has_null(value: Any) -> bool:
    match value:
        case dict():
            return any(map(_has_null, value.values()))
        case list():
            return any(map(_has_null, value))
    return value is None


def evaluates(config: RunConfig) -> bool:
    """Whether any tasks are held out."""
    return bool(config.eval_tasks or config.eval_split)


def context_of(config: RunConfig) -> int:
    """Tokens of prompt and completion together."""
    return config.context_limit or ASSUMED_CONTEXT


def is_directory(config: RunConfig) -> bool:
    """Whether the model is one of this machine, not of the Hugging Face hub."""
    return config.model_name.startswith((".", "/", "~")) or Path(config.model_name).is_dir()


def chat_template_renders(config: RunConfig) -> bool:
    """Whether it is the model's own template, and no renderer of Prime-RL's, that makes prompts."""
    return config.renderer == "template" and ("renderer" in config.given or is_directory(config))
