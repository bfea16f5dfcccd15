"""What the clock of a replayed run is marked with: steps, evaluations, failures, commands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from tbtui.journal.database import Database, in_body
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.timeline import BROKEN, NO_FAILURE, EventTimes

MarkKind = Literal["command", "broken", "failure", "evaluation", "step"]

_KINDS = ("step_finished", "eval_finished", "command_issued", "trial_finished")
_RAREST_LAST: tuple[MarkKind, ...] = ("failure", "step", "evaluation", "broken", "command")
_SPARSE = 6
"""Failed trials are marked where they stand apart: in at most every sixth column."""
_EVERY = 4
"""Marks of steps and evaluations are thinned to at most one in this many columns."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Kind -> the replay times of its marks, ascending, in seconds since the epoch."""

    times: Mapping[MarkKind, tuple[float, ...]]

    def columns(self, start: float, end: float, count: int) -> dict[int, MarkKind]:
        """Which of `count` columns, from `start` to `end`, have a mark; of several the rarest.

        What it costs depends on `count`, and hardly on how many marks there are.
        """
        if end <= start or count < 2:
            return {}
        width = (end - start) / (count - 1)
        found: dict[int, MarkKind] = {}
        for kind in _RAREST_LAST:
            times = self.times.get(kind, ())
            if kind in ("step", "evaluation"):
                for time in _thinned(times, start, end, count // _EVERY):
                    found[round((time - start) / width)] = kind
                continue
            edges = [bisect_left(times, start + (at - 0.5) * width) for at in range(count + 1)]
            # What lies outside belongs to no column at its edge.
            edges[0], edges[-1] = bisect_left(times, start), bisect_right(times, end)
            marked = [at for at in range(count) if edges[at] < edges[at + 1]]
            if kind != "failure" or len(marked) <= count // _SPARSE:
                found |= dict.fromkeys(marked, kind)
        return found


def _thinned(times: tuple[float, ...], start: float, end: float, most: int) -> Iterator[float]:
    """Yield the times from `start` to `end`: each one, or every second, fifth, tenth, ..."""
    first, last = bisect_left(times, start), bisect_right(times, end)
    every = next(
        size * power
        for power in (10**exponent for exponent in range(20))
        for size in (1, 2, 5)
        if (last - first) <= most * size * power or not most
    )
    # The last of each `every`, counted from the run's first.
    for at in range(first + (-first - 1) % every, last, every):
        yield times[at]


def read_marks(run: RunDirectory) -> Marks:
    """Read the marks of a recorded run, all at once: on a thread.

    Raises:
        JournalError: the journal can't be read.
    """
    times: dict[MarkKind, list[float]] = {}
    places = ", ".join("?" * len(_KINDS))
    with closing(Database(run)) as db:
        clock = EventTimes(db)
        rows = db.rows(
            f"SELECT seq, time, kind, iif(kind = 'trial_finished', {in_body('$.outcome')}, NULL)"
            f" FROM events WHERE kind IN ({places}) ORDER BY seq",
            _KINDS,
        )
        for seq, time, kind, outcome in rows:
            if (mark := _mark(kind, outcome)) is not None:
                times.setdefault(mark, []).append(clock.replay_time(seq, time))
    return Marks({kind: tuple(each) for kind, each in times.items()})


def _mark(kind: str, outcome: str | None) -> MarkKind | None:
    match kind:
        case "step_finished":
            return "step"
        case "eval_finished":
            return "evaluation"
        case "command_issued":
            return "command"
        case _ if outcome in BROKEN:
            return "broken"
        case _:
            return None if outcome in NO_FAILURE else "failure"
