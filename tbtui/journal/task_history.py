"""How the tasks of a run have gone, summed up in its database: runs may hold 100,000 trials."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from tbtui.journal.database import JournalError, require_format
from tbtui.journal.rundir import RunDirectory

_STARTED = (
    "SELECT time, json_extract(body, '$.tasks_dir'), json_extract(body, '$.settings.agent')"
    " FROM events WHERE kind = 'run_started' ORDER BY seq LIMIT 1"
)
_TIMED = ("build", "setup", "sampling", "commands", "verifying")
_SECONDS = " + ".join(
    f"coalesce(json_extract(ended.body, '$.seconds.{name}'), 0)" for name in _TIMED
)
_HISTORY = f"""
    SELECT json_extract(queued.body, '$.task'), count(*),
        count(json_extract(ended.body, '$.reward')),
        coalesce(sum(json_extract(ended.body, '$.reward')), 0),
        coalesce(sum(json_extract(ended.body, '$.reward') >= 1), 0),
        avg({_SECONDS})
    FROM events AS queued
    JOIN events AS ended ON ended.trial = queued.trial AND ended.kind = 'trial_finished'
    WHERE queued.kind = 'trial_queued'
    GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task's finished trials in one run."""

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
    """What the journal tells so far; None before the run has begun, and of runs of solutions,
    which say nothing of a policy.

    Raises:
        JournalError: another tbtui's journal, or it can't be read.
    """
    require_format(run)
    address = f"file:{run.database}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as db:
            started = db.execute(_STARTED).fetchone()
            if started is None or started[2] == "oracle":
                return None
            tasks = tuple(TaskHistory(*row) for row in db.execute(_HISTORY))
    except sqlite3.Error as error:
        raise JournalError(f"{run.database}: can't read the journal ({error})") from error
    return RunHistory(started[0], Path(started[1]), tasks)
