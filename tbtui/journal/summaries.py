"""What there is to say of a run in one line, from a few of its events: fast for hundreds."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tbtui.journal.rundir import RunDirectory, writer

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
    """Of its last event."""
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

    @property
    def seconds(self) -> float | None:
        """From its first event to its last one."""
        if self.started_at is None or self.last_at is None:
            return None
        return max(0.0, self.last_at - self.started_at)


def find_runs(logs_dirs: Iterable[Path]) -> Iterator[RunDirectory]:
    """Every run that lies directly in one of the directories, each once."""
    seen: set[Path] = set()
    for logs_dir in logs_dirs:
        for database in logs_dir.expanduser().glob("*/run.db"):
            path = database.parent.resolve()
            if path not in seen:
                seen.add(path)
                yield RunDirectory(path)


def summarise(run: RunDirectory) -> RunSummary:
    """Never fails: a run that can't be read is summarised as such."""
    try:
        live = writer(run) is not None
        with contextlib.closing(sqlite3.connect(f"file:{run.database}?mode=ro", uri=True)) as db:
            return _summary(run, db, live=live)
    except (OSError, sqlite3.Error, ValueError) as error:
        return RunSummary(run, "unreadable", f"run.db can't be read ({error})")


def _summary(run: RunDirectory, db: sqlite3.Connection, *, live: bool) -> RunSummary:
    first = _body(db, "run_started", "ASC")
    if first is None:
        return RunSummary(run, "live" if live else "killed", "nothing is recorded yet")
    seq, started_at, begun = first
    settings: dict[str, Any] = begun.get("settings", {})
    if (continued := _body(db, "run_continued", "DESC")) is not None:
        seq, settings = continued[0], continued[2].get("settings", settings)
    standing: Standing = "live" if live else "killed"
    reason = ""
    ended = _body(db, "run_finished", "DESC")
    if ended is not None and ended[0] > seq:
        standing, reason = ended[2]["status"], ended[2]["reason"]
    step = _body(db, "step_finished", "DESC")
    evaluations = [
        rate
        for (rate,) in db.execute(
            "SELECT json_extract(body, '$.pass_rate') FROM events"
            " WHERE kind = 'eval_finished' ORDER BY seq"
        )
        if rate is not None
    ]
    (rollouts,) = db.execute("SELECT count(*) FROM events WHERE kind = 'trial_finished'").fetchone()
    (last_at,) = db.execute("SELECT time FROM events ORDER BY seq DESC LIMIT 1").fetchone()
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
        settings.get("max_steps"),
        evaluations[0] if evaluations else None,
        evaluations[-1] if evaluations else None,
        rollouts,
    )


def _body(
    db: sqlite3.Connection, kind: str, order: Literal["ASC", "DESC"]
) -> tuple[int, float, dict[str, Any]] | None:
    """The first or the last event of a kind."""
    row = db.execute(
        f"SELECT seq, time, body FROM events WHERE kind = ? ORDER BY seq {order} LIMIT 1", (kind,)
    ).fetchone()
    return None if row is None else (row[0], row[1], json.loads(row[2]))


def newest_first(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    return sorted(
        summaries, key=lambda each: (each.started_at or 0.0, each.directory.name), reverse=True
    )
