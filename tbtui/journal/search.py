"""Looks for a text in what models said and terminals showed.

A scan, not an index: SQLite's LIKE goes through some hundred megabytes a second, on several
threads, where an FTS5 index takes several times as long to build, and would have to be kept up to
date beside every run.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tbtui.journal.database import Database, JournalError, in_body
from tbtui.journal.rundir import RunDirectory
from tbtui.terminal import without_escapes

_FIELDS: dict[str, dict[str, str]] = {
    "turn_sampled": {"text": "said", "thinking": "thought"},
    "turn_parsed": {"analysis": "said", "plan": "said", "commands": "typed"},
    "turn_observed": {"observation": "saw"},
    "trial_finished": {"reason": "ended", "verifier_output": "verifier"},
}
"""Kind of event -> its texts, and what each is."""

_RANGE = 25_000
"""Events that one thread looks through at a time."""
_AROUND = 60
"""Characters of an excerpt on each side of the text."""
MOST = 500
"""Hits, at most: a text that has more is too short to look for."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A turn, or a verdict, that has the text."""

    run: RunDirectory
    trial: str
    label: str
    step: int
    turn: int | None
    """None: in the verdict."""
    where: str
    """`said`, `thought`, `typed`, `saw`, `ended` or `verifier`."""
    time: float
    """The event's own, seconds since the epoch; not its replay time."""
    seq: int
    """Number of its event."""
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is, from 0 to 1, and what it has found since the last time."""

    share: float
    hits: tuple[Hit, ...]


def search(run: RunDirectory, text: str) -> Iterator[SearchProgress]:
    """Look through a run from its start. ASCII letters match in either case; at most `MOST` hits.

    Raises `JournalError` when the journal can't be read, and at the end when a corrupt row was
    passed over, which may have the text. Giving up the iterator ends the search.
    """
    with contextlib.closing(Database(run)) as db:
        last = db.last_seq()
        edges = [*range(0, last, _RANGE), last]
        found = 0
        seen: set[tuple[str, int | None]] = set()
        passed_over: list[JournalError] = []
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
            pending = [
                threads.submit(_rows, run, text, after, until) for after, until in pairwise(edges)
            ]
            try:
                for rows, (_, until) in zip(pending, pairwise(edges), strict=True):
                    read = _read(db, rows.result(), passed_over)
                    hits = tuple(_hits(run, db, read, text, seen, MOST - found))
                    found += len(hits)
                    yield SearchProgress(until / last, hits)
                    if found >= MOST:
                        break
            finally:
                for each in pending:
                    each.cancel()
    if passed_over:
        raise passed_over[0]


def _rows(
    run: RunDirectory, text: str, after: int, until: int
) -> list[tuple[int, float, str, str, str]]:
    kinds = ", ".join("?" * len(_FIELDS))
    # As it stands in JSON, with what LIKE would read otherwise made literal.
    needle = json.dumps(text, ensure_ascii=False)[1:-1]
    for special in ("!", "%", "_"):
        needle = needle.replace(special, f"!{special}")
    with contextlib.closing(Database(run)) as db:
        # The plus keeps SQLite from going through the rows in the order of an index.
        return db.rows(
            f"SELECT seq, time, kind, trial, body FROM events WHERE seq > ? AND seq <= ?"
            f" AND +kind IN ({kinds}) AND body LIKE ? ESCAPE '!' ORDER BY seq LIMIT ?",
            (after, until, *_FIELDS, f"%{needle}%", 4 * MOST),
        )


def _read(
    db: Database,
    rows: list[tuple[int, float, str, str, str]],
    passed_over: list[JournalError],
) -> Iterator[tuple[int, float, str, str, dict[str, Any]]]:
    for seq, time, kind, trial, body in rows:
        try:
            event = json.loads(body)
            if not isinstance(event, dict):
                raise ValueError(event)
            read = seq, float(time), kind, trial, event
        except (RecursionError, TypeError, ValueError):
            passed_over.append(db.corrupt(seq, kind))
        else:
            yield read


def _hits(
    run: RunDirectory,
    db: Database,
    events: Iterator[tuple[int, float, str, str, dict[str, Any]]],
    text: str,
    seen: set[tuple[str, int | None]],
    most: int,
) -> Iterator[Hit]:
    """One a turn: what was said is there again in what was understood of it."""
    labels: dict[str, tuple[str, int]] = {}
    for seq, time, kind, trial, event in events:
        if most <= 0:
            return
        turn = event.get("turn")
        excerpt = _excerpt(kind, event, text)
        if excerpt is None or (trial, turn) in seen:
            # Without one, only the names of fields have the text.
            continue
        seen.add((trial, turn))
        if trial not in labels:
            labels[trial] = _label(db, trial)
        most -= 1
        yield Hit(run, trial, *labels[trial], turn, excerpt[0], time, seq, *excerpt[1:])


def _excerpt(kind: str, event: dict[str, Any], text: str) -> tuple[str, str, str, str] | None:
    for field, where in _FIELDS[kind].items():
        value = event.get(field) or ""
        if isinstance(value, list):
            typed = [each.get("keystrokes") for each in value if isinstance(each, dict)]
            value = "\n".join(each for each in typed if isinstance(each, str))
        if not isinstance(value, str):
            continue
        place = value.lower().find(text.lower())
        if place >= 0:
            end = place + len(text)
            # Cut behind what is left out: a colour's escape may begin further away.
            before = without_escapes(value[max(0, place - 4 * _AROUND) : place])[-_AROUND:]
            after = without_escapes(value[end : end + 4 * _AROUND])[:_AROUND]
            return where, before, value[place:end], after
    return None


def _label(db: Database, trial: str) -> tuple[str, int]:
    row = db.row(
        f"SELECT {in_body('$.label')}, {in_body('$.step')} FROM events"
        " WHERE trial = ? AND +kind = 'trial_queued'",
        (trial,),
    )
    return (trial, 0) if row is None or row[0] is None else (str(row[0]), int(row[1]))
