"""The list of runs: which there are, and each as one row, from a few of its journal's events.

Runs may hold 100,000 trials, and a directory hundreds of runs: a row is summed up in the database.
What a live run waits for takes a fold of its journal, and is read only where it is asked for.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from tbtui.journal.database import Database, JournalError, in_body
from tbtui.journal.events import RunStatus
from tbtui.journal.figures import planned_steps
from tbtui.journal.metrics import dead_times
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import (
    RunDirectory,
    RunDirectoryError,
    is_live,
    journal_stands,
    live_runs,
    writer,
)
from tbtui.paths import PathError, expanded
from tbtui.view.reading import state_at_end
from tbtui.view.state import RunState
from tbtui.view.times import Outlook
from tbtui.view.waiting import needs, waiting_for

SILENT_SEC = 90.0
"""A live run measures its own processes every few seconds: one that has written nothing for so long
hangs, is stopped, or can't write."""
_POINTS = 60
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as it was measured last."""

    host: str = ""
    index: int = 0
    utilisation: float | None = None
    """Share of the last moments in which something was computed, from 0 to 1."""
    memory_used_mib: int | None = None


class RunSummary(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "name": "run",
        "path": "directory",
        "model_name": "model",
        "last_pass_rate": "pass_rate",
    },
):
    """A row of every list of runs, and what their JSON has of a run; times in seconds since the
    epoch. What `decode_row` reads may be from another machine's tbtui, an older one too."""

    status: str
    """`live`, `paused`, how it ended, `killed` where it could not say so, `unreadable`;
    `unreachable`: it stands for a machine that gave no rows."""
    host: str = ""
    """The machine; empty: this one."""
    name: str = ""
    path: Annotated[str, msgspec.Meta(pattern=r"^[^\0]*$")] = ""
    """Its directory, on its machine."""
    reason: str = ""
    """How it ended, or why it can't be read, in one line."""
    pid: int | None = None
    """The process that runs it; None: it is over, or was killed."""
    started_at: _Seconds | None = None
    seconds: _Seconds | None = None
    """From its first event to its last one, as long as it had a process."""
    silent_sec: _Seconds | None = None
    """Since the last event of a live run."""
    engine: str = ""
    policy: str = ""
    model_name: str = ""
    step: int = 0
    """Optimiser steps done."""
    max_steps: int | None = None
    first_pass_rate: float | None = None
    """Held out, of the first evaluation."""
    last_pass_rate: float | None = None
    curve: Annotated[tuple[float, ...], msgspec.Meta(max_length=_POINTS)] = ()
    curve_of: str | None = None
    """`held out`, or `reward`: the mean of each step's trials."""
    rollouts: int = 0
    """Trials finished, evaluations' among them."""
    cost_usd: float | None = None
    alarms: int = 0
    alarm: str | None = None
    """The last one."""

    # Of a live run, where an outlook was asked for.
    phase: str | None = None
    waiting_for: str | None = None
    needs: tuple[str, ...] = ()
    """What it needs a person for, the most important first."""
    trials_running: int = 0
    trials_queued: int = 0
    gpus: Annotated[tuple[GpuUse, ...], msgspec.Meta(max_length=1024)] = ()

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(Path(self.path))

    @property
    def live(self) -> bool:
        """A process writes it now."""
        return self.pid is not None

    @property
    def standing(self) -> str:
        """The status, but that a paused run is `live`."""
        return "live" if self.status == "paused" else self.status

    @property
    def known(self) -> bool:
        """There is a run, and its journal can be read."""
        return self.status not in ("unreachable", "unreadable")

    @property
    def silent(self) -> bool:
        return self.silent_sec is not None and self.silent_sec > SILENT_SEC

    @property
    def steps(self) -> str:
        """`12/40`; `12` where no end is known."""
        return f"{self.step}/{self.max_steps}" if self.max_steps else f"{self.step}"


def row_document(row: RunSummary) -> dict[str, Any]:
    """A row with plain values, as every command's `--json` has it."""
    document: dict[str, Any] = msgspec.to_builtins(row)
    return document | {
        "state": row.standing,
        "last_pass_rate": row.last_pass_rate,
        "silent": row.silent,
    }


def decode_row(text: msgspec.Raw | bytes) -> RunSummary:
    """The row that some tbtui has written as JSON, or somebody in its place.

    Raises:
        msgspec.DecodeError, RecursionError, UnicodeError: it is none.
    """
    fields = msgspec.json.decode(text, type=dict[str, Any])
    # Older ones write null for what isn't known.
    known = {name: value for name, value in fields.items() if value is not None}
    return msgspec.convert(known, RunSummary)


# Which runs there are


@dataclass(slots=True)
class RunList:
    """The runs of some directories; what was read of those that are over is kept."""

    logs_dirs: Sequence[Path]
    outlook: bool = False
    """Read what live runs wait for, too."""
    elsewhere: bool = False
    """Live runs of this user count wherever they lie."""
    _known: dict[RunDirectory, tuple[Hashable, RunSummary]] = field(default_factory=dict)

    def read(self, ended_since: float = -math.inf) -> list[RunSummary]:
        """A row for each live run, and for those that have written something since that time; the
        newest first.

        Raises:
            RunDirectoryError: one mayn't look there.
        """
        found = {run.path: run for run in live_runs()} if self.elsewhere else {}
        found |= {run.path: run for run in find_runs(self.logs_dirs)}
        rows = [self._row(run, ended_since) for run in found.values()]
        known = [row for row in rows if row is not None]
        return sorted(known, key=lambda row: (row.started_at or 0.0, row.name), reverse=True)

    def _row(self, run: RunDirectory, ended_since: float) -> RunSummary | None:
        if is_live(run):
            return summarise(run, outlook=self.outlook)
        with contextlib.suppress(OSError):  # it has gone meanwhile: its row says so
            if run.database.stat().st_mtime < ended_since:
                return None
        stands = journal_stands(run)
        if run not in self._known or self._known[run][0] != stands:
            self._known[run] = stands, summarise(run)
        return self._known[run][1]


def find_runs(logs_dirs: Iterable[Path]) -> Iterator[RunDirectory]:
    """Every run that lies directly in one of the directories, each once.

    Raises:
        RunDirectoryError: one mayn't look there.
    """
    seen: set[Path] = set()
    for logs_dir in logs_dirs:
        for database in _looked_in(logs_dir).glob("*/run.db"):
            path = database.parent.resolve()
            if path not in seen:
                seen.add(path)
                yield RunDirectory(path)


def _looked_in(logs_dir: Path) -> Path:
    try:
        return expanded(logs_dir)
    except PathError as error:
        raise RunDirectoryError(str(error)) from error


def find_live(logs_dir: Path) -> list[RunDirectory]:
    """Live runs of this user on this machine, and those in `logs_dir`; by name."""
    found = {run.path: run for run in live_runs()}
    found |= {run.path: run for run in find_runs([logs_dir]) if is_live(run)}
    return sorted(found.values(), key=lambda run: (run.name, run.path))


# One run as a row


def summarise(run: RunDirectory, *, outlook: bool = False) -> RunSummary:
    """Never fails: a run that can't be read is summarised as such."""
    try:
        pid = writer(run)
        with contextlib.closing(Database(run)) as db:
            summary = _summary(run, db, pid)
    except (JournalError, RunDirectoryError, OSError) as error:
        return _unreadable(run, str(error))
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        return _unreadable(run, f"{run.database}: a row is not what was written ({error!r:.200})")
    if not outlook or summary.standing != "live":
        return summary
    try:
        with contextlib.closing(JournalReader(run, lenient=True)) as reader:
            state = state_at_end(reader)
            summary = with_outlook(summary, state, time.time())
            return msgspec.structs.replace(summary, reason=reader.trouble or summary.reason)
    except (JournalError, OSError) as error:
        return _unreadable(run, str(error))


def _unreadable(run: RunDirectory, reason: str) -> RunSummary:
    return RunSummary(status="unreadable", name=run.name, path=str(run.path), reason=reason)


def with_outlook(summary: RunSummary, state: RunState, now: float) -> RunSummary:
    """The row of a live run, with what it does and waits for."""
    outlook, running = Outlook(state, now), state.running_trials()
    return msgspec.structs.replace(
        summary,
        status="paused" if state.paused else summary.status,
        phase=str(state.phase),
        waiting_for=waiting_for(outlook),
        needs=tuple(need.text for need in needs(outlook)),
        trials_running=len(running),
        trials_queued=len(state.live_trials()) - len(running),
        gpus=tuple(
            GpuUse(
                host=measured.host,
                index=gpu.index,
                utilisation=gpu.utilisation,
                memory_used_mib=gpu.memory_used_mib,
            )
            for measured in state.gpus.values()
            for gpu in measured.gpus
        ),
    )


def _summary(run: RunDirectory, db: Database, pid: int | None) -> RunSummary:
    row = RunSummary(
        status="killed" if pid is None else "live",
        reason="nothing is recorded yet",
        name=run.name,
        path=str(run.path),
        pid=pid,
    )
    first = _body(db, "run_started", "ASC", "settings", "tasks")
    if first is None:
        return row
    seq, started_at, begun = first
    settings: dict[str, Any] = begun["settings"]
    if (continued := _body(db, "run_continued", "DESC")) is not None:
        seq, settings = continued[0], continued[2].get("settings", settings)
    changes = db.rows(
        "SELECT json_extract(body, '$.settings') FROM events"
        " WHERE kind = 'settings_changed' AND seq > ? ORDER BY seq",
        (seq,),
    )
    for (changed,) in changes:
        settings |= json.loads(changed)
    train_tasks = sum(task["split"] == "train" for task in begun["tasks"])
    status, reason = row.status, ""
    ended = _body(db, "run_finished", "DESC", "status", "reason")
    if ended is not None and ended[0] > seq:
        status, reason = ended[2]["status"], ended[2]["reason"]
        if status not in get_args(RunStatus):
            raise db.corrupt(ended[0], "run_finished")
    step = _body(db, "step_finished", "DESC", "step")
    evaluations = _numbers(
        db,
        "SELECT seq, json_extract(body, '$.pass_rate') FROM events"
        " WHERE kind = 'eval_finished' ORDER BY seq",
    )
    rewards = _numbers(db, _REWARDS)
    held_out = len(evaluations) > 2 or not rewards
    (rollouts,) = db.row(
        "SELECT count(*) FROM events WHERE kind = 'trial_finished'"
        f" AND {in_body('$.outcome')} IS NOT 'cancelled'"
    )
    costs = _numbers(db, _COST)
    (alarms,) = db.row("SELECT count(*) FROM events WHERE kind = 'alarm_raised'")
    alarm = db.row(_ALARM)
    (last_at,) = db.row("SELECT time FROM events ORDER BY seq DESC LIMIT 1")
    dead = sum(seconds for _, seconds in dead_times(db)) if continued is not None else 0.0
    return msgspec.structs.replace(
        row,
        status=status,
        reason=reason,
        started_at=started_at,
        seconds=round(max(0.0, last_at - started_at - dead), 1),
        silent_sec=round(max(0.0, time.time() - last_at), 1) if status == "live" else None,
        engine=str(settings.get("engine") or "grpo"),
        policy=begun.get("policy", ""),
        model_name=begun.get("model_name", ""),
        step=0 if step is None else int(step[2]["step"]),
        max_steps=planned_steps(settings, train_tasks) or settings.get("max_steps"),
        first_pass_rate=evaluations[0] if evaluations else None,
        last_pass_rate=evaluations[-1] if evaluations else None,
        curve=tuple(round(rate, 4) for rate in (evaluations if held_out else rewards)[-_POINTS:]),
        curve_of="held out" if held_out else "reward",
        rollouts=rollouts,
        cost_usd=costs[0] if costs else None,
        alarms=alarms,
        alarm=str(alarm[0]) if alarm else None,
    )


_REWARDS = f"""
    SELECT {in_body("$.step")}, {in_body('$.metrics."env/all/reward/total"')}
    FROM events WHERE kind = 'step_finished' ORDER BY seq
"""
_COST = f"""
    SELECT seq, {in_body('$.metrics."cost/total_usd"')} AS cost
    FROM events WHERE kind IN ('step_finished', 'eval_finished') AND cost IS NOT NULL
    ORDER BY seq DESC LIMIT 1
"""
_ALARM = f"""
    SELECT {in_body("$.text")} FROM events
    WHERE kind = 'alarm_raised' AND json_valid(body) ORDER BY seq DESC LIMIT 1
"""


def _numbers(db: Database, query: str) -> list[float]:
    """Each value of the second column that is a number, the last one for each of the first."""
    return list(
        {
            key: float(value)
            for key, value in db.rows(query)
            if isinstance(value, int | float) and math.isfinite(value)
        }.values()
    )


def _body(
    db: Database, kind: str, order: Literal["ASC", "DESC"], *needed: str
) -> tuple[int, float, dict[str, Any]] | None:
    """The first or the last event of a kind, with the fields that are `needed` of it."""
    row = db.row(
        f"SELECT seq, time, body FROM events WHERE kind = ? ORDER BY seq {order} LIMIT 1", (kind,)
    )
    if row is None:
        return None
    seq, time, body = row
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise db.corrupt(seq, kind) from error
    if not isinstance(fields, dict) or not fields.keys() >= set(needed):
        raise db.corrupt(seq, kind)
    return seq, time, fields
