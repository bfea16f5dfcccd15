"""A recorded or live run in a few lines: its curves, its newest groups, what was set, how it went,
what was noted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AlarmRaised,
    GroupAdded,
    GroupScored,
    Noted,
    RunContinued,
    RunStarted,
    SettingsChanged,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialFinished,
    TrialPaused,
    TrialPhaseChanged,
    TrialQueued,
    TrialRelabelled,
    TrialResumed,
    TrialRetried,
    TurnStarted,
)
from tbtui.journal.metrics import Points, read_series
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, read_notes
from tbtui.view.current import places
from tbtui.view.fold import Fold
from tbtui.view.groups import TrialGroup, grouped

_SETTINGS = (RunStarted.kind, RunContinued.kind, SettingsChanged.kind)
_NOTES = (Noted.kind, AlarmRaised.kind)
_TRIALS = tuple(
    event.kind
    for event in (
        *(StepStarted, StepFinished, GroupAdded, GroupScored, TrialQueued, TrialPhaseChanged),
        *(TurnStarted, TrialPaused, TrialResumed, TrialFinished, TrialRetried, TrialExcluded),
        TrialRelabelled,
    )
)
"""What a group's row is made of."""
_LATEST = 5
"""Warnings that are kept."""


@dataclass(frozen=True, slots=True)
class RunPreview:
    training: Points = ()
    """Mean reward by step."""
    held_out: Points = ()
    """Pass rate by step, with its 95% interval."""
    settings: Mapping[str, Any] | None = None
    """Those in force; None: not known yet."""
    warnings: tuple[str, ...] = ()
    """The latest warnings, errors and alarms, the last one last."""
    notes: tuple[str, ...] = ()
    """People's, the latest last."""
    step: int = 0
    """The step that was begun last."""
    groups: tuple[TrialGroup, ...] = ()
    """Its groups, as they were queued."""
    until: float = 0.0
    """Time of the last of the events that the groups are made of."""
    trouble: str = ""
    """Why the journal can't be read."""


def read_preview(run: RunDirectory) -> RunPreview:
    """Read a run's preview; never fails: what can't be read is said in it."""
    notes = tuple(read_notes(run))
    try:
        with closing(JournalReader(run, lenient=True)) as reader:
            settings = _settings(reader)
            warnings = _warnings(reader)
            step, groups, until = _newest_groups(reader)
        return RunPreview(
            read_series(run, "env/all/reward/total", "step"),
            read_series(run, "eval/pass_rate", "step"),
            settings,
            warnings,
            notes,
            step,
            groups,
            until,
        )
    except JournalError as error:
        return RunPreview(notes=notes, trouble=str(error))


def _settings(reader: JournalReader) -> Mapping[str, Any] | None:
    settings: dict[str, Any] | None = None
    after = 0
    while entries := reader.read_kinds(_SETTINGS, after):
        after = entries[-1].seq
        for entry in entries:
            match entry.event:
                case RunStarted() | RunContinued() as begun:
                    settings = dict(begun.settings)
                case SettingsChanged() as changed:
                    settings = {**(settings or {}), **changed.settings}
                case _:
                    pass
    return settings


def _newest_groups(reader: JournalReader) -> tuple[int, tuple[TrialGroup, ...], float]:
    """The step that was begun last, its groups, and the time of the last event about them."""
    begun = reader.nth_last(StepStarted.kind, 1, reader.last_seq())
    if not begun:
        return 0, (), 0.0
    fold, step, until = Fold(), 0, 0.0
    for entry in reader.each(_TRIALS, begun - 1):
        if isinstance(entry.event, StepStarted):
            step = entry.event.step
        fold.apply(entry)
        until = entry.time
    trials = fold.state.trials
    own = [t.trial for t in trials.values() if (t.purpose, t.step) == ("train", step)]
    return step, tuple(grouped((trials[name] for name in places(own, trials)), fold.state)), until


def _warnings(reader: JournalReader) -> tuple[str, ...]:
    latest: list[str] = []
    after = max(0, *(reader.nth_last(kind, _LATEST * 4, reader.last_seq()) for kind in _NOTES))
    while entries := reader.read_kinds(_NOTES, after):
        after = entries[-1].seq
        for entry in entries:
            match entry.event:
                case Noted(level="warning" | "error") as noted:
                    latest.append(noted.text)
                case AlarmRaised() as alarm:
                    latest.append(f"step {alarm.step}: {alarm.text}")
                case _:
                    pass
    return tuple(latest[-_LATEST:])


def changed_settings(
    settings: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """The settings that differ from their defaults, but for where the run is kept."""
    return [
        (name, value)
        for name, value in settings.items()
        if name not in ("logs_dir", "run_name") and value != defaults.get(name)
    ]
