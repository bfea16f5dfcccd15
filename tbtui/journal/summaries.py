"""What a journal says of a run in one line, and of how its tasks have gone.

Summed up in its database, from a few of its events: runs may hold 100,000 trials, and a directory
hundreds of runs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tbtui.journal.database import Database, JournalError, in_body
from tbtui.journal.events import RunStatus
from tbtui.journal.figures import planned_steps
from tbtui.journal.metrics import dead_times
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, writer
from tbtui.paths import PathError, expanded

Standing = Literal["live", "finished", "failed", "interrupted", "killed", "unreadable"]
"""`killed`: it is over and could not say so."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    directory: RunDirectory
    standing: Standing
    reason: str = ""
    """How it ended, or why it can't be read, in one line."""
    started_at: float | None = None
    """Seconds since the epoch, as all times."""
    last_at: float | None = None
    """Time of its last event."""
    policy: str = ""
    model_name: str = ""
    engine: str = ""
    step: int = 0
    """Optimiser steps done."""
    max_steps: int | None = None
    first_pass_rate: float | None = None
    """Held out, of the first evaluation."""
    last_pass_rate: float | None = None
    rollouts: int = 0
    """Trials finished, evaluations' among them."""
    dead_sec: float = 0.0
    """Seconds between its processes, of a run that was resumed."""

    @property
    def seconds(self) -> float | None:
        """From its first event to its last one, as long as it had a process."""
        if self.started_at is None or self.last_at is None:
            return None
        return max(0.0, self.last_at - self.started_at - self.dead_sec)


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


def summarise(run: RunDirectory) -> RunSummary:
    """Never fails: a run that can't be read is summarised as such."""
    try:
        live = writer(run) is not None
        with contextlib.closing(Database(run)) as db:
            return _summary(run, db, live=live)
    except (JournalError, RunDirectoryError) as error:
        return RunSummary(run, "unreadable", str(error))
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        reason = f"{run.database}: a row is not what was written ({error!r:.200})"
        return RunSummary(run, "unreadable", reason)


def _summary(run: RunDirectory, db: Database, *, live: bool) -> RunSummary:
    first = _body(db, "run_started", "ASC", "settings", "tasks")
    if first is None:
        return RunSummary(run, "live" if live else "killed", "nothing is recorded yet")
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
    standing: Standing = "live" if live else "killed"
    reason = ""
    ended = _body(db, "run_finished", "DESC", "status", "reason")
    if ended is not None and ended[0] > seq:
        standing, reason = ended[2]["status"], ended[2]["reason"]
        if standing not in get_args(RunStatus):
            raise db.corrupt(ended[0], "run_finished")
    step = _body(db, "step_finished", "DESC", "step")
    evaluations = [
        rate
        for (rate,) in db.rows(
            "SELECT json_extract(body, '$.pass_rate') FROM events"
            " WHERE kind = 'eval_finished' ORDER BY seq"
        )
        if rate is not None
    ]
    (rollouts,) = db.row(
        "SELECT count(*) FROM events WHERE kind = 'trial_finished'"
        f" AND {in_body('$.outcome')} IS NOT 'cancelled'"
    )
    (last_at,) = db.row("SELECT time FROM events ORDER BY seq DESC LIMIT 1")
    return RunSummary(
        run,
        standing,
        reason,
        started_at,
        last_at,
        begun.get("policy", ""),
        begun.get("model_name", ""),
        str(settings.get("engine") or "grpo"),
        0 if step is None else int(step[2]["step"]),
        planned_steps(settings, train_tasks) or settings.get("max_steps"),
        evaluations[0] if evaluations else None,
        evaluations[-1] if evaluations else None,
        rollouts,
        sum(seconds for _, seconds in dead_times(db)) if continued is not None else 0.0,
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


def newest_first(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    return sorted(
        summaries, key=lambda each: (each.started_at or 0.0, each.directory.name), reverse=True
    )


_STARTED = (
    f"SELECT time, {in_body('$.tasks_dir')}, {in_body('$.settings.agent')}"
    " FROM events WHERE kind = 'run_started' ORDER BY seq LIMIT 1"
)
_TIMED = ("build", "setup", "sampling", "commands", "verifying")
_SECONDS = " + ".join(f"coalesce({in_body(f'$.seconds.{name}', 'ended')}, 0)" for name in _TIMED)
_HISTORY = f"""
    WITH relabelled AS (
        -- Of the last such event: so SQLite takes the columns beside a max().
        SELECT trial, {in_body("$.reward")} AS reward, max(seq)
        FROM events WHERE kind = 'trial_relabelled' GROUP BY trial
    ),
    finished AS (
        SELECT {in_body("$.task", "queued")} AS task,
            iif(relabelled.trial IS NULL, {in_body("$.reward", "ended")}, relabelled.reward)
                AS reward,
            {_SECONDS} AS seconds
        FROM events AS queued
        JOIN events AS ended ON ended.trial = queued.trial AND ended.kind = 'trial_finished'
        LEFT JOIN relabelled ON relabelled.trial = queued.trial
        WHERE queued.kind = 'trial_queued'
    )
    SELECT task, count(*), count(reward), coalesce(sum(reward), 0), coalesce(sum(reward >= 1), 0),
        avg(seconds)
    FROM finished WHERE task IS NOT NULL GROUP BY task
"""


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task's finished trials in one run, with the rewards in force."""

    task: str
    trials: int
    scored: int
    reward_sum: float
    solved: int
    seconds: float
    """Mean time that a trial was worked on: not in the queue, nor paused, nor torn down."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    started_at: float
    """Seconds since the epoch."""
    tasks_dir: Path
    tasks: tuple[TaskHistory, ...]


def read_history(run: RunDirectory) -> RunHistory | None:
    """How the tasks have gone so far; None before the run has begun, and of runs of solutions,
    which say nothing of a policy.

    Raises:
        JournalError: another tbtui's journal, or it can't be read.
    """
    with contextlib.closing(Database(run)) as db:
        started = db.row(_STARTED)
        if started is None or started[1] is None or started[2] == "oracle":
            return None
        tasks = tuple(TaskHistory(*row) for row in db.rows(_HISTORY))
    return RunHistory(started[0], Path(started[1]), tasks)
