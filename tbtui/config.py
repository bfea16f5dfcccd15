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

OutcomeAction = Literal["train", "mask", "retry", "halt"]
"""What is done with a trial for its outcome: `mask` leaves it out of its group's baseline too,
`retry` tries again and masks it when the attempts are used up, `halt` ends the run."""


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
    short_groups: Literal["refill", "drop"] = Field(
        "refill", description="A group with fewer: run as many fresh trials once, or leave it out"
    )

    # What an outcome leads to
    on_outcome: dict[str, OutcomeAction] = Field(
        {}, description="Exceptions to the table of `tbtui run --explain`: on_outcome.NAME=ACTION"
    )
    max_retries: int = Field(2, ge=0, description="Further attempts where an outcome means retry")
    retry_wait_sec: float = Field(
        1.0, ge=0, description="Wait before the first retry; doubles with each, half of it random"
    )
    halt_after: int = Field(
        24, ge=0, description="Failures of infrastructure in a row that end the run; 0: never"
    )

    # Rollouts
    max_turns: int = Field(6, ge=1, description="Model calls in a trial")
    max_tokens: int = Field(96, ge=1, description="Tokens in one completion")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature in training")
    sample_timeout_sec: float = Field(
        300.0, gt=0, description="Longest that the policy may take for one completion"
    )
    trial_timeout_sec: float | None = Field(
        None, gt=0, description="Active seconds of the agent; default: the task's own"
    )
    environment_type: str | None = Field(
        None, description="sandbox, docker, podman or module:Class; default: what this host has"
    )
    environment_kwargs: dict[str, Any] = Field(
        {}, description="Passed through to the environment: environment_kwargs.NAME=VALUE"
    )
    n_parallel_envs: int = Field(16, ge=1, description="Trials that run at once")
    env_starts_per_sec: float = Field(
        0, ge=0, description="Most trials started in a second; 0: no limit"
    )
    n_workers: int = Field(2, ge=1, description="Processes that run them")
    worker_max_mb: int = Field(
        512, ge=0, description="A worker with more resident memory is replaced; 0: never"
    )
    worker_max_trials: int = Field(
        1000, ge=0, description="A worker that has run so many trials is replaced; 0: never"
    )

    # Stragglers
    step_deadline_sec: float | None = Field(
        None, gt=0, description="Active seconds that a step's trials have in all; default: no limit"
    )
    at_deadline: Literal["wait", "stop", "mask"] = Field(
        "stop", description="Then: only say so, stop and verify, or leave the late ones out"
    )
    oversample: int = Field(0, ge=0, description="Extra trials that each training group starts")
    oversample_keep: Literal["in_order", "first_finished"] = Field(
        "in_order",
        description="Which of them fill the group; first_finished favours short trials",
    )

    # Where it goes
    logs_dir: Path = Field(Path("runs"), description="Directory of runs")
    run_name: str | None = Field(
        None, description="Directory of this run in logs_dir; default: date and time"
    )
    keep: Literal["all", "failed", "none"] = Field(
        "all", description="Whose recordings and logs stay on disk; tokens always do"
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
        "short_groups",
    ),
    "What an outcome leads to": ("on_outcome", "max_retries", "retry_wait_sec", "halt_after"),
    "Evaluation": ("eval_every", "eval_group_size", "eval_temperature"),
    "Trials": (
        "max_turns",
        "max_tokens",
        "temperature",
        "sample_timeout_sec",
        "trial_timeout_sec",
        "environment_type",
        "environment_kwargs",
        "n_parallel_envs",
        "env_starts_per_sec",
        "n_workers",
        "worker_max_mb",
        "worker_max_trials",
    ),
    "Stragglers": ("step_deadline_sec", "at_deadline", "oversample", "oversample_keep"),
    "Where it goes": ("logs_dir", "run_name", "keep", "save_every", "wandb_project", "wandb_name"),
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
            default = "" if field.default in (None, (), {}) else field.default
            rows.append((f"{name}={default}", field.description or ""))
        yield heading, rows


def parse_settings(arguments: Sequence[str]) -> RunConfig:
    """`name=value` arguments, and TOML files among them, to a config.

    What comes later wins over a file; a setting that is a table takes its entries one by one, as
    `name.entry=value`.

    Raises:
        ConfigError: a malformed argument or file, an unknown name (the nearest known one is
            suggested), a repeated name, or a value of the wrong type or out of range.
    """
    values: dict[str, Any] = {}
    given: set[str] = set()
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals and name.endswith(".toml"):
            values |= _read_file(Path(name))
            continue
        if not equals or not name:
            raise ConfigError(f"{argument!r} is not a setting; write name=value")
        if name in given:
            raise ConfigError(f"setting {name!r} is given twice")
        given.add(name)
        table, dot, entry = name.partition(".")
        _require_known(table)
        is_table = isinstance(RunConfig.model_fields[table].default, dict)
        if is_table != bool(dot and entry):
            raise ConfigError(
                f"{table} is a table; write {table}.NAME=VALUE"
                if is_table
                else f"{table} is not a table; write {table}=VALUE"
            )
        if is_table:
            values[table] = {**values.get(table, {}), entry: _entry(text)}
        else:
            values[table] = _read(table, text)
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib  # few runs have a file

    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: {reason}") from error
    for name in values:
        _require_known(name, f"{path}: ")
    return values


def _require_known(name: str, where: str = "") -> None:
    if name not in RunConfig.model_fields:
        raise ConfigError(f"{where}unknown setting {name!r}{_suggestion(name)}")


def _entry(text: str) -> Any:
    """What a table's entry holds: JSON where it is that (numbers, true, lists), else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


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
    name = ".".join(map(str, first["loc"])) or "settings"
    message = str(first["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    message = message.removesuffix(", unable to parse string as an integer")
    message = message.removesuffix(", unable to parse string as a number")
    return f"{name}={first.get('input')}: should be {message}"


def to_toml(config: RunConfig) -> str:
    """The whole config as TOML, settings without a value as comments."""
    lines = []
    for name, value in config.model_dump(mode="json").items():
        comment = RunConfig.model_fields[name].description
        text = f"# {name} =" if value is None else f"{name} = {_toml(value)}"
        lines.append(f"{text}  # {comment}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    # Every JSON string, number, boolean and list of them is also TOML.
    return json.dumps(value)
