"""`tbtui probe`: a few trials of training tasks before a run, and what they say of it.

It is a run of no steps, whose trials can be watched, replayed and searched as any other's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from tbtui import launch
from tbtui.command_line import EXIT, say
from tbtui.commands.evaluate import EvaluationRun, Weights, weights_config, weights_of
from tbtui.config import ConfigError, RunConfig, names_of, parse_settings, to_json
from tbtui.config.values import policy_of
from tbtui.engines.grpo.checkpoint_state import STATE_FILE
from tbtui.engines.probe_arms import arms_of, default_arms
from tbtui.errors import UserError
from tbtui.journal.events import ProbeMeasured, ProbeStarted, RunStarted
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import expanded
from tbtui.terminal import counted
from tbtui.view.probe import amount_words, head, judge, next_command, rows
from tbtui.view.probe import closing as closing_lines

NOT_AS_IT_IS = 3
"""Exit status of a probe after which the run should not start as it was asked for."""
_TRIALS = 4
"""Trials of each task in each arm: enough to see a signal where a third is solved."""
_HOURS = 0.25
"""A probe that takes longer than a quarter of an hour is not worth more than the run itself."""


def probe(arguments: Sequence[str], view: launch.View) -> int:
    """Probe a model; prints a table, a verdict and the next command, or with `json` a document.

    Args:
        arguments: a model, a run or a checkpoint, then tasks, if any; then settings.

    Returns the exit status: 0 go, 3 not as it is, else as `launch`.
    """
    try:
        planned = prepare_probe(arguments)
    except UserError as error:
        say(error)
        return EXIT["refused"]
    say(plan_words(planned.config))
    status, directory = planned.run("progress" if view == "json" else view)
    if directory is None:
        return status
    return print_probe(directory, as_json=view == "json")


def prepare_probe(arguments: Sequence[str]) -> EvaluationRun:
    """The run of a probe. Raises `UserError`."""
    target, tasks, settings = _divide(arguments)
    if tasks is not None:
        settings = [f"tasks_dir={tasks}", *settings]
    weights = Weights("the starting weights")
    if target is not None and _is_of_a_run(target, settings):
        weights = weights_of(target, settings, use_latest=False)
    elif target is not None:
        settings = [f"model_name={target}", *settings]
    config = weights_config(weights, settings, shlex.join(filter(None, ("tbtui", "probe", target))))
    _require_model(config)
    names = names_of(settings)
    changes: dict[str, object] = {"policy_restarts": 0}
    if "probe" not in names:
        changes["probe"] = default_arms(config)
    if "eval_group_size" not in names:
        changes["eval_group_size"] = _TRIALS
    if not config.limits and not config.budget:
        changes["budget"] = {"hours": _HOURS}
    if config.checkpoint is not None:
        changes["given"] = config.given | {"checkpoint"}
    what = f"{config.model_name}, {weights.what}" if weights.checkpoint else config.model_name
    probed = config.replace(**changes)
    arms_of(probed)  # refused before anything is said of them
    passed_over = tuple(weights.checkpoint.passed_over) if weights.checkpoint else ()
    return EvaluationRun(probed, what, passed_over, "probe")


def plan_words(config: RunConfig) -> str:
    """What a probe will do at most, and its budget."""
    trials = config.probe_tasks * len(config.probe) * config.eval_group_size
    budget = ", ".join(amount_words(unit, limit) for unit, limit in config.limits.items())
    tasks, arms = counted(config.probe_tasks, "task"), " and ".join(config.probe)
    return (
        f"probe of {config.model_name}: up to {trials} trials, {config.eval_group_size} of each of"
        f" {tasks} with {arms}; budget: {budget}"
    )


def _divide(arguments: Sequence[str]) -> tuple[str | None, str | None, list[str]]:
    """Split arguments into the model, the tasks and the settings."""
    named = [each for each in arguments[:2] if "=" not in each and not each.endswith(".toml")]
    if any("=" in each for each in arguments[: len(named)]):
        raise ConfigError(f"{named[-1]!r}: the model and its tasks come before the settings")
    target, tasks, *_ = (*named, None, None)
    return target, tasks, list(arguments[len(named) :])


def _is_of_a_run(target: str, settings: Sequence[str]) -> bool:
    """Whether that is a run, or a checkpoint of one."""
    path = expanded(target)
    places = (path, parse_settings(settings).logs_dir / path)
    return (path / STATE_FILE).is_file() or any(
        expanded(each / "run.db").is_file() for each in places
    )


def _require_model(config: RunConfig) -> None:
    """Refuse what is there and no model, before anything is loaded. Raises `ConfigError`."""
    place = Path(config.model_name).expanduser()
    if policy_of(to_json(config)) in ("openai", "vllm"):
        return
    if not place.exists():
        if config.model_name.startswith(("/", "./", "../", "~")):
            raise ConfigError(f"model_name={config.model_name}: there is no such directory")
        return
    if not place.is_dir():
        raise ConfigError(
            f"model_name={config.model_name}: a file is no model; give a directory with config.json"
            " and safetensors, or a name on the hub"
        )
    if not (place / "config.json").is_file():
        raise ConfigError(
            f"model_name={config.model_name}: there is no config.json in it; name a directory with"
            " config.json and safetensors"
        )


def print_probe(directory: RunDirectory, *, as_json: bool) -> int:
    """Print what a finished probe has found; returns the exit status."""
    with closing(JournalReader(directory)) as reader:
        kinds = (RunStarted.kind, ProbeStarted.kind, ProbeMeasured.kind)
        events = {entry.event.kind: entry.event for entry in reader.each(kinds)}
    run, started = events[RunStarted.kind], events[ProbeStarted.kind]
    measured = events[ProbeMeasured.kind]
    assert isinstance(run, RunStarted)
    assert isinstance(started, ProbeStarted)
    assert isinstance(measured, ProbeMeasured)
    verdict = judge(measured.arms, run.settings, started.untried)
    command = next_command(verdict, started, run.settings)
    if as_json:
        document = {
            "record": "probe",
            "run": directory.name,
            "directory": str(directory.path),
            "tasks": started.tasks,
            **msgspec.to_builtins(measured, str_keys=True),
            "verdict": verdict.kind,
            "goes": verdict.goes,
            "why": verdict.why,
            "command": command,
        }
        document.pop("kind", None)
        typer.echo(json.dumps(document))
    else:
        _print_table(measured, run)
        typer.echo(f"verdict: {verdict.why}")
        typer.echo(f"next: {command}")
    return EXIT["finished"] if verdict.goes else NOT_AS_IT_IS


def _print_table(measured: ProbeMeasured, run: RunStarted) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in head(measured):
        numbers = name in ("n", "read", "cut", "step")
        side: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(name, justify=side, no_wrap=True, overflow="ellipsis")
    for row in rows(measured):
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()
    for line in closing_lines(measured, run.settings):
        console.print(line, markup=False)
