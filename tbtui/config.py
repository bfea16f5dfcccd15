"""Every setting of a run, once: its name, default, unit and meaning.

`--help`, validation, the run's `config.toml` and the documentation all read this one place.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ConfigError(Exception):
    """A setting is unknown or its value can't be used; one line that says what to do."""


class RunConfig(BaseModel):
    """The settings of one run. Given on the command line as `name=value`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # What is trained
    policy: Literal["local"] = Field(
        "local", description="Where the model runs: `local` is the embedded one"
    )
    model_name: str = Field(
        "starter", description="Model to train; the embedded policy ships `starter`"
    )
    checkpoint: Path | None = Field(
        None, description="Checkpoint directory to start from, in place of the shipped one"
    )

    # On what
    tasks_dir: Path | None = Field(
        None, description="Directory of Harbor tasks; default: the bundled starter tasks"
    )
    eval_split: float = Field(
        0.2, ge=0, lt=1, description="Share of tasks held out where none declares a split"
    )
    eval_tasks: tuple[str, ...] = Field(
        (), description="Names of the tasks to hold out, in place of a split"
    )

    # How long, how many
    max_steps: int = Field(40, ge=0, description="Optimiser steps; 0 only evaluates")
    batch_size: int = Field(4, ge=1, description="Tasks (groups) in a step")
    group_size: int = Field(8, ge=1, description="Trials of one task in a step")
    seed: int = Field(0, ge=0, description="Order of tasks and every random draw")

    # Evaluation on held-out tasks
    eval_every: int = Field(
        10, ge=0, description="Steps between evaluations; 0: only before and after"
    )
    eval_group_size: int = Field(1, ge=1, description="Trials of each held-out task")
    eval_temperature: float = Field(1.0, gt=0, description="Sampling temperature in evaluation")

    # Learning
    learning_rate: float = Field(2e-4, gt=0, description="AdamW step size, at the start")
    lr_schedule: Literal["constant", "linear"] = Field(
        "linear", description="linear: the learning rate falls step by step until max_steps"
    )
    loss_fn: Literal["importance_sampling", "ppo", "cispo"] = Field(
        "importance_sampling", description="Policy-gradient loss"
    )
    clip_low: float = Field(0.2, ge=0, lt=1, description="PPO: ratio clipped below 1 - this")
    clip_high: float = Field(0.2, ge=0, description="PPO: ratio clipped above 1 + this")
    grad_clip: float = Field(0.3, ge=0, description="Largest gradient norm; 0 switches it off")
    min_group: int = Field(2, ge=1, description="Scored trials that a group needs to be trained on")
    max_retries: int = Field(
        2, ge=0, description="Further attempts at a trial that infrastructure has failed"
    )

    # Rollouts
    max_turns: int = Field(6, ge=1, description="Model calls in a trial")
    max_tokens: int = Field(96, ge=1, description="Tokens in one completion")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature in training")
    trial_timeout_sec: float | None = Field(
        None, gt=0, description="Active seconds of the agent; default: the task's own"
    )
    environment_type: str | None = Field(
        None, description="sandbox, docker, podman or module:Class; default: what this host has"
    )
    n_parallel_envs: int = Field(16, ge=1, description="Trials that run at once")
    n_workers: int = Field(2, ge=1, description="Processes that run them")

    # Where it goes
    logs_dir: Path = Field(Path("runs"), description="Directory of runs")
    run_name: str | None = Field(
        None, description="Directory of this run in logs_dir; default: date and time"
    )
    save_every: int = Field(10, ge=0, description="Steps between checkpoints; 0: only at the end")
    wandb_project: str | None = Field(None, description="Log metrics to this wandb project")
    wandb_name: str | None = Field(None, description="Name of the wandb run")


GROUPS: dict[str, tuple[str, ...]] = {
    "What is trained": ("policy", "model_name", "checkpoint"),
    "On which tasks": ("tasks_dir", "eval_split", "eval_tasks"),
    "How long and how much": ("max_steps", "batch_size", "group_size", "seed"),
    "Learning": (
        "learning_rate",
        "lr_schedule",
        "loss_fn",
        "clip_low",
        "clip_high",
        "grad_clip",
        "min_group",
        "max_retries",
    ),
    "Evaluation": ("eval_every", "eval_group_size", "eval_temperature"),
    "Trials": (
        "max_turns",
        "max_tokens",
        "temperature",
        "trial_timeout_sec",
        "environment_type",
        "n_parallel_envs",
        "n_workers",
    ),
    "Where it goes": ("logs_dir", "run_name", "save_every", "wandb_project", "wandb_name"),
}
"""Every setting, in the order and under the headings that a person reads them."""


def setting_names() -> tuple[str, ...]:
    return tuple(RunConfig.model_fields)


def setting_rows() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """For each heading, its settings as (`name=default`, meaning)."""
    for heading, names in GROUPS.items():
        rows = []
        for name in names:
            field = RunConfig.model_fields[name]
            default = "" if field.default in (None, ()) else field.default
            rows.append((f"{name}={default}", field.description or ""))
        yield heading, rows


def parse_settings(arguments: Sequence[str]) -> RunConfig:
    """`name=value` arguments to a config.

    Raises:
        ConfigError: a malformed argument, an unknown name (the nearest known one is suggested),
            a repeated name, or a value of the wrong type or out of range.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name:
            raise ConfigError(f"{argument!r} is not a setting; write name=value")
        if name not in RunConfig.model_fields:
            raise ConfigError(f"unknown setting {name!r}{_suggestion(name)}")
        if name in values:
            raise ConfigError(f"setting {name!r} is given twice")
        values[name] = _read(name, text)
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, setting_names(), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "; see `tbtui run --help`"


def _read(name: str, text: str) -> Any:
    """Lists are comma-separated, an empty text or `none` is None, the rest is left to pydantic."""
    field = RunConfig.model_fields[name]
    if text.lower() in {"", "none"} and field.default is None:
        return None
    if isinstance(field.default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    message = str(first["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    message = message.removesuffix(", unable to parse string as an integer")
    message = message.removesuffix(", unable to parse string as a number")
    return f"{name}={first.get('input')}: should be {message}"


def to_toml(config: RunConfig) -> str:
    """The whole config as TOML, settings without a value as comments."""
    lines = []
    for name, value in config.model_dump(mode="json").items():
        comment = RunConfig.model_fields[name].description
        # Every JSON string, number, boolean and list of strings is also TOML.
        text = f"# {name} =" if value is None else f"{name} = {json.dumps(value)}"
        lines.append(f"{text}  # {comment}")
    return "\n".join(lines) + "\n"
