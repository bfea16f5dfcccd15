"""What the sampler and the trainer did, over time: busy, and with what, or idle. Pure.

The sampler is busy while a trial waits for a completion. The trainer is busy while the run trains,
publishes or saves, and while the policy says so (with `stream`, groups are trained while others are
sampled). Both follow from the journal alone, so a replay shows what a live run does, whichever
policy or engine it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from tbtui.journal.events import (
    AnyEvent,
    Entry,
    PolicyLost,
    PolicyMeasured,
    RunContinued,
    RunFinished,
    RunPhaseChanged,
    TrialFinished,
    TrialPaused,
    TrialPhaseChanged,
    TrialResumed,
    TurnSampled,
)
from tbtui.vocabulary import PUBLISHING, RunPhase, TrialPhase

Lane = Literal["sampler", "trainer"]
LANES: tuple[Lane, ...] = get_args(Lane)
Work = Literal["sampling", "training", "publishing", "saving"]
WORKS: tuple[Work, ...] = get_args(Work)

SLICE_SEC = 0.5
"""Trials ask the sampler many times a second: what is kept is how busy it was in each slice."""
MAX_SLICES = 3600
"""Half an hour."""
_OFF = frozenset({RunPhase.STARTING, RunPhase.STOPPING, RunPhase.FINISHED})
_TRAINER: dict[str, Work] = {"training": "training", "saving": "saving"}
"""A policy's activity -> the trainer's work."""


@dataclass(slots=True)
class Slice:
    """Seconds of work of each lane within one slice."""

    number: int
    """Since the epoch, in slices."""
    covered: float = 0.0
    """Seconds of it in which the run was under way."""
    seconds: dict[Work, float] = field(default_factory=dict)


@dataclass(slots=True)
class LaneRecord:
    """The latest slices, and what is being done since the last event."""

    slices: deque[Slice] = field(default_factory=lambda: deque(maxlen=MAX_SLICES))
    until: float | None = None
    """Up to when the slices say it; None: the run isn't under way."""
    sampling: set[str] = field(default_factory=set)
    """Trials that wait for a completion."""
    paused: set[str] = field(default_factory=set)
    phase: RunPhase = RunPhase.STARTING
    publishing: bool = False
    activity: str = ""
    """The policy's, as it was measured since the run's phase began."""

    def see(self, entry: Entry) -> None:
        """Fold an event in. The cost does not grow with the number of past events."""
        if type(entry.event) not in _SEEN:
            return
        if isinstance(entry.event, RunContinued):
            self.until = None  # nothing ran since the last event
        self._advance(entry.time)
        self._apply(entry.event)
        if self.phase in _OFF:
            self.until = None
        elif self.until is None:
            self.until = entry.time

    def works(self) -> tuple[Work, ...]:
        """What is being done: at most one thing by the sampler, and one by the trainer."""
        if self.phase in _OFF:
            return ()
        works: list[Work] = ["sampling"] if self.sampling - self.paused else []
        if self.phase is RunPhase.TRAINING:
            works.append("publishing" if self.publishing else "training")
        elif self.phase is RunPhase.SAVING:
            works.append("saving")
        elif self.activity in _TRAINER:
            works.append(_TRAINER[self.activity])
        return tuple(works)

    def _apply(self, event: AnyEvent) -> None:
        match event:
            case TrialPhaseChanged(phase=TrialPhase.MODEL):
                self.sampling.add(event.trial)
            case TrialPhaseChanged() | TurnSampled():
                self.sampling.discard(event.trial)
            case TrialPaused():
                self.paused.add(event.trial)
            case TrialResumed():
                self.paused.discard(event.trial)
            case TrialFinished():
                self.sampling.discard(event.trial)
                self.paused.discard(event.trial)
            case PolicyMeasured():
                self.activity = event.activity
            case RunPhaseChanged():
                self.phase, self.activity = event.phase, ""
                self.publishing = event.detail == PUBLISHING
            case RunContinued() | PolicyLost():
                # Nobody knows when the work under way was cut off.
                self.phase, self.activity = RunPhase.STARTING, ""
                self.sampling.clear()
                self.paused.clear()
            case RunFinished():
                self.phase = RunPhase.FINISHED
            case _:
                pass

    def _advance(self, now: float) -> None:
        """Add the time since the last event to the slices."""
        if self.until is None or now <= self.until:
            return
        works = self.works()
        at = max(self.until, now - MAX_SLICES * SLICE_SEC)
        for number, seconds in _parts(at, now):
            if not self.slices or self.slices[-1].number != number:
                self.slices.append(Slice(number))
            _add(self.slices[-1], works, seconds)
        self.until = now


_SEEN = frozenset(
    {
        *(TrialPhaseChanged, TurnSampled, TrialPaused, TrialResumed, TrialFinished),
        *(PolicyMeasured, RunPhaseChanged, RunContinued, PolicyLost, RunFinished),
    }
)


def _parts(since: float, until: float) -> Iterator[tuple[int, float]]:
    """Each slice from `since` to `until`, and how many seconds of it lie between them."""
    for number in range(int(since // SLICE_SEC), int(until // SLICE_SEC) + 1):
        seconds = min(until, (number + 1) * SLICE_SEC) - max(since, number * SLICE_SEC)
        if seconds > 0:
            yield number, seconds


def _add(into: Slice, works: tuple[Work, ...], seconds: float) -> None:
    into.covered += seconds
    for work in works:
        into.seconds[work] = into.seconds.get(work, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class LaneCell:
    """A stretch of a lane's time."""

    work: Work | None
    """What most of its busy time went to; None: it was idle."""
    share: float
    """Busy part of it, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane over a stretch of time."""

    lane: Lane
    cells: tuple[LaneCell | None, ...]
    """Oldest first; None: the run was not under way."""
    shares: dict[Work, float]
    """Share of the time, from 0 to 1."""

    @property
    def idle(self) -> float:
        """Share of the time without work."""
        return max(0.0, 1.0 - sum(self.shares.values()))


def lanes(record: LaneRecord, since: float, now: float, cells: int) -> tuple[LaneView, ...]:
    """Both lanes from `since` (seconds since the epoch) to `now`, in so many cells; none where
    the run was not under way."""
    since = max(since, now - MAX_SLICES * SLICE_SEC)
    if cells < 1 or now <= since:
        return ()
    sums = [Slice(0) for _ in range(cells)]
    for each in reversed(record.slices):
        if (each.number + 1) * SLICE_SEC <= since:
            break
        _spread(each, since, now, sums)
    if record.until is not None:
        # What goes on since the last event.
        for number, seconds in _parts(max(since, record.until), now):
            open_slice = Slice(number)
            _add(open_slice, record.works(), seconds)
            _spread(open_slice, since, now, sums)
    covered = sum(each.covered for each in sums)
    if not covered:
        return ()
    return tuple(_view(lane, sums, covered) for lane in LANES)


def _spread(slice_: Slice, since: float, now: float, sums: list[Slice]) -> None:
    """Add a slice to the cells that it overlaps, to each its part."""
    size = (now - since) / len(sums)
    start = slice_.number * SLICE_SEC
    first = max(0, int((start - since) / size))
    last = min(len(sums) - 1, int((start + SLICE_SEC - since) / size))
    for at in range(first, last + 1):
        left, right = since + at * size, since + (at + 1) * size
        part = (min(right, start + SLICE_SEC) - max(left, start)) / SLICE_SEC
        if part <= 0:
            continue
        sums[at].covered += slice_.covered * part
        for work, seconds in slice_.seconds.items():
            sums[at].seconds[work] = sums[at].seconds.get(work, 0.0) + seconds * part


def _view(lane: Lane, sums: list[Slice], covered: float) -> LaneView:
    works = [work for work in WORKS if (work == "sampling") is (lane == "sampler")]
    totals = {work: sum(each.seconds.get(work, 0.0) for each in sums) for work in works}
    return LaneView(
        lane,
        tuple(_cell(each, works) for each in sums),
        {work: seconds / covered for work, seconds in totals.items() if seconds},
    )


def _cell(of: Slice, works: list[Work]) -> LaneCell | None:
    if not of.covered:
        return None
    busy = {work: seconds for work in works if (seconds := of.seconds.get(work, 0.0)) > 0}
    if not busy:
        return LaneCell(None, 0.0)
    most = max(busy, key=busy.__getitem__)
    return LaneCell(most, min(1.0, sum(busy.values()) / of.covered))
