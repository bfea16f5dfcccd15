"""Where in a recorded run things happened, without reading what lies between; and the marks of a
replay's clock: steps, evaluations, failures, commands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf, nextafter
from typing import Literal

from tbtui.errors import UserError
from tbtui.journal.database import Database, in_body
from tbtui.journal.rundir import RunDirectory
from tbtui.outcomes import INFRASTRUCTURE, Outcome


@dataclass(frozen=True, slots=True)
class _Dip:
    """Events whose own times lie before that of the event in front of them."""

    first: int
    """Number of its first event."""
    end: int | None
    """Number of the first event after it; None: it lasts until the journal's end."""
    time: float
    """Time of the event in front of it."""


class EventTimes:
    """Finds events by time. Times are seconds since the epoch.

    An event's replay time, at which a replay shows it, is never before that of the event in front
    of it, whatever its own time: some runs journal a trial when it is over, and a machine's clock
    may be set back.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._dips: list[_Dip] = []
        self._known = 1
        """Up to this event dips have been looked for: once, as it means to look at every event."""

    def seq_at(self, time: float) -> int:
        """Number of the last event whose replay time is at most `time`; 0: none."""
        low, high = 0, self._look()
        while low < high:
            middle = (low + high + 1) // 2
            # Of a damaged journal some may be missing.
            found = self._db.row(
                "SELECT seq, time FROM events WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (middle,)
            )
            if found is None or self._replay_time(*found) <= time:
                low = middle
            else:
                high = middle - 1
        return low

    def replay_time(self, seq: int, time: float) -> float:
        """When a replay shows an event, by its number and its own time."""
        self._look()
        return self._replay_time(seq, time)

    def _replay_time(self, seq: int, time: float) -> float:
        place = bisect_right(self._dips, seq, key=lambda dip: dip.first)
        if not place:
            return time
        dip = self._dips[place - 1]
        return dip.time if dip.end is None or seq < dip.end else time

    def _look(self) -> int:
        """Look for dips in what is new; returns the last event's number."""
        last = self._db.last_seq()
        if last <= self._known:
            return last
        if (seq := self._db.timeless(self._known - 1)) is not None:
            raise self._db.corrupt(seq, "its time")
        if self._dips and self._dips[-1].end is None:
            dip = self._dips.pop()
            self._dips.append(self._dip(dip.first, dip.time))
        falls = self._db.rows(
            "SELECT later.seq, earlier.time FROM events AS earlier"
            " JOIN events AS later ON later.seq = earlier.seq + 1"
            " WHERE earlier.seq >= ? AND earlier.seq < ? AND later.time < earlier.time"
            " ORDER BY later.seq",
            (self._known, last),
        )
        for seq, time in falls:
            before = self._dips[-1] if self._dips else None
            if before is None or (before.end is not None and before.end < seq):
                self._dips.append(self._dip(seq, time))
        self._known = last
        return last

    def _dip(self, first: int, time: float) -> _Dip:
        row = self._db.row(
            "SELECT seq FROM events WHERE seq > ? AND time >= ? ORDER BY seq LIMIT 1",
            (first, time),
        )
        return _Dip(first, row[0] if row else None, time)


Direction = Literal[-1, 1]

TURN_ENDS = ("turn_observed", "trial_finished")

_PERSISTENT = (
    *("step_finished", "eval_finished", "review_opened"),
    *("alarm_raised", "policy_lost", "worker_lost"),
)
BROKEN = tuple(INFRASTRUCTURE)
_SHOWN = 5
"""Trials that are named where one was meant."""
NO_FAILURE = (Outcome.SOLVED, Outcome.CANCELLED, *BROKEN)


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened."""

    time: float
    """Its replay time."""
    kind: str
    trial: str | None
    text: str
    """What it was in a few words, where its kind doesn't say it all."""


class Timeline:
    """Looks through a run's journal by replay time (`EventTimes`), seconds since the epoch.

    Everything raises `JournalError` when it can't be read.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._db = Database(run)
        self._times = EventTimes(self._db)

    def bounds(self) -> tuple[float, float] | None:
        """Times of the first event and of the last; None: there is none yet."""
        first = self._first_time("true ORDER BY seq")
        last = self._first_time("true ORDER BY seq DESC")
        return None if first is None or last is None else (first, last)

    def seq_at(self, time: float) -> int:
        """Number of the last event whose replay time is at most `time`; 0: none."""
        return self._times.seq_at(time)

    def replay_time(self, seq: int, time: float) -> float:
        """When a replay shows an event, by its number and its own time."""
        return self._times.replay_time(seq, time)

    def span(self, trial: str) -> tuple[float, float] | None:
        """When a trial left the queue, and its last event; None: it isn't in the journal."""
        began = self._first_time("trial = ? AND +kind != 'trial_queued' ORDER BY seq", trial)
        last = self._first_time("trial = ? ORDER BY seq DESC", trial)
        return None if last is None else (last if began is None else began, last)

    def step_end(self, step: int) -> float | None:
        """When an optimiser step was done."""
        return self._first_time(
            f"kind = 'step_finished' AND {in_body('$.step')} = ? ORDER BY seq", step
        )

    def event(self, time: float, direction: Direction, trial: str | None = None) -> Moment | None:
        """The nearest event after `time`, or before it; of a trial, or of the run."""
        where, values = ("trial = ?", (trial,)) if trial is not None else ("true", ())
        return self._nearest(time, direction, where, values)

    def turn_end(self, time: float, direction: Direction, trial: str) -> Moment | None:
        """The nearest end of a turn of the trial."""
        marks = ", ".join("?" * len(TURN_ENDS))
        return self._nearest(
            time, direction, f"trial = ? AND +kind IN ({marks})", (trial, *TURN_ENDS)
        )

    def milestone(self, time: float, direction: Direction) -> Moment | None:
        """The nearest end of a step or an evaluation, review, alarm, warning, trial that broke."""
        kinds = ", ".join("?" * len(_PERSISTENT))
        broken = ", ".join("?" * len(BROKEN))
        found = [
            self._nearest(time, direction, f"kind IN ({kinds})", _PERSISTENT),
            self._nearest(
                time,
                direction,
                f"kind = 'noted' AND {in_body('$.level')} IN ('warning', 'error')",
            ),
            self._nearest(
                time,
                direction,
                f"kind = 'trial_finished' AND {in_body('$.outcome')} IN ({broken})",
                BROKEN,
            ),
        ]
        return _first(found, direction)

    def failure(self, time: float, direction: Direction) -> Moment | None:
        """The nearest end of a trial that solved less than all of its task."""
        others = ", ".join("?" * len(NO_FAILURE))
        return self._nearest(
            time,
            direction,
            f"kind = 'trial_finished' AND {in_body('$.outcome')} NOT IN ({others})",
            NO_FAILURE,
        )

    def command(self, time: float, direction: Direction) -> Moment | None:
        """The nearest command that a person or a script gave."""
        return self._nearest(time, direction, "kind = 'command_issued'")

    def find_trials(self, name: str) -> list[tuple[str, str, int]]:
        """Trials of this id or label, or whose label begins with it: id, label, step."""
        rows = self._db.rows(
            f"SELECT trial, coalesce({in_body('$.label')}, trial) AS label,"
            f" coalesce({in_body('$.step')}, 0)"
            " FROM events WHERE kind = 'trial_queued'"
            " AND (trial = :name OR substr(label, 1, length(:name)) = :name) ORDER BY seq",
            {"name": name},
        )
        exact = [row for row in rows if name in row[:2]]
        return [(str(trial), str(label), int(step)) for trial, label, step in exact or rows]

    def close(self) -> None:
        self._db.close()

    def _first_time(self, where: str, *values: object) -> float | None:
        """Replay time of the first such event."""
        row = self._db.row(f"SELECT seq, time FROM events WHERE {where} LIMIT 1", values)
        return None if row is None else self.replay_time(*row)

    def _nearest(
        self, time: float, direction: Direction, where: str, values: Sequence[object] = ()
    ) -> Moment | None:
        if direction == 1:
            edge, place = self._times.seq_at(time), "seq > ? ORDER BY seq"
        else:
            edge = self._times.seq_at(nextafter(time, -inf))
            place = "seq <= ? ORDER BY seq DESC"
        row = self._db.row(
            f"SELECT seq, time, kind, trial, coalesce({in_body('$.text')}, {in_body('$.verb')},"
            f" {in_body('$.reason')}, {in_body('$.step')}, '')"
            f" FROM events WHERE {where} AND {place} LIMIT 1",
            (*values, edge),
        )
        if row is None:
            return None
        seq, own, kind, trial, text = row
        return Moment(self.replay_time(seq, own), kind, trial, str(text))


def _first(moments: Sequence[Moment | None], direction: Direction) -> Moment | None:
    """The one that comes first in the direction of travel."""
    return min(
        (each for each in moments if each is not None),
        key=lambda each: direction * each.time,
        default=None,
    )


def find_trial(run: RunDirectory, name: str) -> str:
    """The id of the trial that is called so: by its id, or by its label or the start of one.

    Raises:
        UserError: there is none, or more than one.
        JournalError: the journal can't be read.
    """
    with closing(Timeline(run)) as timeline:
        found = timeline.find_trials(name)
    if not found:
        raise UserError(f"{name}: no such trial in {run.name}; write its label (copy-03/2)")
    if len(found) > 1:
        names = [f"{trial} ({label}, step {step})" for trial, label, step in found[:_SHOWN]]
        which = f"{name}: {len(found)} trials are called so; write which"
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise UserError(f"{which}: {', '.join(names)}{more}")
    return found[0][0]


# Marks of a replay's clock

MarkKind = Literal["command", "broken", "failure", "evaluation", "step"]

_KINDS = ("step_finished", "eval_finished", "command_issued", "trial_finished")


@dataclass(frozen=True, slots=True)
class TimelineMarks:
    """Kind -> the replay times of its marks, ascending, in seconds since the epoch."""

    times: Mapping[MarkKind, tuple[float, ...]]


def read_marks(run: RunDirectory) -> TimelineMarks:
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
    return TimelineMarks({kind: tuple(each) for kind, each in times.items()})


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
