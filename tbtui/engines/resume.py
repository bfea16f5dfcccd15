"""Checks a run that is to be resumed, and its new settings, before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.catalog import CatalogError, find_tasks
from tbtui.config import (
    ConfigError,
    RunConfig,
    absolute,
    fixed_on_resume,
    parse_run_settings,
    parse_settings,
    to_json,
    to_toml,
)
from tbtui.config.earlier import as_now
from tbtui.config.toml import read_toml
from tbtui.config.trust import remember
from tbtui.config.values import lacks_password, require_no_errors
from tbtui.engines.request import RunRequest, config_problems
from tbtui.invocation import to_type
from tbtui.journal import events
from tbtui.journal.events import (
    RunContinued,
    RunFinished,
    RunStarted,
    SettingsChanged,
    StepFinished,
)
from tbtui.journal.figures import total_steps
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import (
    RunDirectory,
    RunDirectoryError,
    find_run,
    require_no_writer,
    require_writable_within,
)
from tbtui.view.reading import state_by_kinds
from tbtui.view.state import RunState


def _kinds(*classes: type[events.AnyEvent]) -> tuple[str, ...]:
    return tuple(event.kind for event in classes)


HISTORY_KINDS = _kinds(
    events.CommandDone,
    events.CommandIssued,
    events.DemonstrationsTrained,
    events.EvalFinished,
    events.EvalStarted,
    events.ForksStarted,
    events.GroupAdded,
    events.GroupRefilled,
    events.GroupScored,
    events.ReviewClosed,
    events.ReviewOpened,
    events.RunContinued,
    events.RunPaused,
    events.RunResumed,
    events.RunStarted,
    events.StepFinished,
    events.StepStarted,
    events.TasksDrawn,
    events.TasksSetAside,
    events.TasksWeighted,
    events.TrialExcluded,
    events.TrialFinished,
    events.TrialQueued,
    events.TrialRelabelled,
    events.TrialRetried,
    events.TurnsValued,
)
"""Events that a resumed run is put together from (`grpo/history.py`)."""
_PROGRESS_KINDS = _kinds(RunStarted, RunContinued, RunFinished, StepFinished)
"""Events that say how far a run is."""


@dataclass(frozen=True, slots=True)
class ResumeRequest(RunRequest):
    """A run that is to go on."""

    def discard(self) -> None:
        """Keep the directory: it is that of an earlier part of the run."""


def request_resume(run: str, settings: Sequence[str]) -> ResumeRequest:
    """Find the run and check the settings that change from here on; nothing is written.

    Args:
        run: a run directory, or the name of one in `logs_dir`.
        settings: as for a new run; they win over the run's own.

    Raises:
        RunDirectoryError: there is no such run, or it is live.
        JournalError: another tbtui's journal.
        ConfigError: settings that can't be used, or can't change now; a run that is complete.
    """
    given = parse_settings(settings)
    directory = find_run(run, given.logs_dir)
    require_no_writer(directory)
    require_writable_within(directory)
    old, new = _settings(directory, settings)
    require_no_errors(config_problems(new))
    if new.probe:
        raise ConfigError(f"{directory.name} is a probe, which does not go on: start another one")
    new = _same(old, absolute(new), directory)
    with closing(JournalReader(directory)) as reader:
        # Refused now, not when the policy is loaded.
        reader.require_sound(HISTORY_KINDS)
        run_so_far = state_by_kinds(reader, _PROGRESS_KINDS)
    if new.engine == "grpo":  # Prime-RL's own file says how long the run is
        _require_work(run_so_far, new, directory)
    remember(new, directory.path)
    return ResumeRequest(new, directory)


def _settings(directory: RunDirectory, settings: Sequence[str]) -> tuple[RunConfig, RunConfig]:
    """The run's own settings, and those with `settings` over them."""
    if not directory.config.is_file():
        raise RunDirectoryError(f"{directory.config}: missing; the run can't go on without it")
    if gone := as_now(read_toml(directory.config))[1]:
        raise ConfigError(f"{directory.config}: {gone}")
    place = [f"logs_dir={directory.path.parent}"]
    others = [each for each in settings if not each.startswith("logs_dir=")]
    own = [directory.config]
    changed = [f"{name}={text}" for name, text in _changed_live(directory).items()]
    old = parse_settings([*changed, *place], files=own)
    names = {each.partition("=")[0] for each in others}
    # Either says how long the run is. What is asked for now replaces what was asked for then.
    if "n_epochs" in names and "max_steps" not in names:
        others.append("max_steps=default")
    elif "max_steps" in names and "n_epochs" not in names:
        others.append("n_epochs=none")
    line = to_type("run", "--resume", directory.path)
    return old, parse_run_settings(directory.config, changed, [*others, *place], command=line)


def _changed_live(directory: RunDirectory) -> dict[str, str]:
    """Settings changed while the run was live, since `config.toml` was written: name -> value."""
    kinds = _kinds(RunStarted, RunContinued, SettingsChanged)
    changed: dict[str, str] = {}
    with closing(JournalReader(directory)) as reader:
        for entry in reader.each(kinds):
            if isinstance(entry.event, SettingsChanged):
                for name, value in entry.event.settings.items():
                    table = value if isinstance(value, dict) else None
                    each = {name: value} if table is None else _entries(name, table)
                    changed |= {key: "none" if v is None else str(v) for key, v in each.items()}
            else:
                changed.clear()
    return changed


def _entries(name: str, table: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{entry}": value for entry, value in table.items()}


def _same(old: RunConfig, new: RunConfig, directory: RunDirectory) -> RunConfig:
    """`new`, in which what can't change is written as it was; raises `ConfigError`.

    Tasks may lie elsewhere by now: whether they are the same ones is seen when they are read.
    """
    before, now, fixed = to_json(absolute(old)), to_json(new), fixed_on_resume()
    moved = _tasks(old) in (None, _tasks(new))
    for name, reason in fixed.items():
        if before[name] != now[name] and not (name == "tasks_dir" and moved):
            raise ConfigError(
                f"{name}={now[name]}: {directory.name} was begun with {before[name]}, and {reason};"
                f" for another {name}, start a new run"
                + (" from a checkpoint of this one" if name not in ("run_name", "policy") else "")
            )
    kept = {name: getattr(old, name) for name in fixed if name != "tasks_dir"}
    for address in ("vllm_base_url", "openai_base_url"):
        if lacks_password(kept[address]):
            del kept[address]  # it was given again
    return new.replace(**kept)


def _tasks(config: RunConfig) -> Path | None:
    try:
        return find_tasks(config.tasks_dir).resolve()
    except CatalogError:
        return None


def _require_work(run: RunState, config: RunConfig, directory: RunDirectory) -> None:
    """Raise `ConfigError` when there is nothing left to do in a run."""
    tasks = sum(task.split == "train" for task in run.tasks.values())
    if not tasks:  # it ended before it had journalled them
        return
    last = total_steps(config.step_limit, config.n_epochs, tasks, config.batch_size)
    name = "n_epochs" if config.step_limit is None else "max_steps"
    value = config.n_epochs if config.step_limit is None else config.step_limit
    if run.status == "finished" and last <= run.step:
        raise ConfigError(
            f"{directory.name} is finished: {run.step} steps; to go on, give a larger"
            f" {name} than {value}"
        )
    if last < run.step:
        raise ConfigError(f"{name}={value}: {directory.name} has done {run.step} steps already")


def keep_settings(directory: RunDirectory, config: RunConfig) -> None:
    """Make `config` the run's settings; the ones before stay as `config-1.toml` and so on."""
    text = to_toml(config)
    if directory.config.read_text() == text:
        return
    number = 1 + sum(1 for _ in directory.path.glob("config-*.toml"))
    new = directory.path / "config.toml.new"
    new.write_text(text)
    # A hard link, so that there is a config.toml at every moment.
    (directory.path / f"config-{number}.toml").hardlink_to(directory.config)
    new.replace(directory.config)
