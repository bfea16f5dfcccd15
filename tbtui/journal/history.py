"""How a run's tasks have gone, summed up in its database: runs may hold 100,000 trials."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tbtui.journal.database import Database, in_body
from tbtui.journal.rundir import RunDirectory

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
