"""Brings a fold to a place in the journal, in small reads or from a snapshot; a replay's clock."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.comparison import REWARD_KINDS, Comparison, TaskRewards, compare
from tbtui.view.fold import Fold
from tbtui.view.state import MAX_FINISHED_TRIALS, RunState

_BITE = 200
"""Events read at once: about 5 ms of work."""
_WIDE_BITE = 4000
"""The same where most events are passed over."""
_FAR = 10_000
"""Events from here on are not all read to get to a place."""
_MEASUREMENTS = 30
"""The latest ones tell how things stand and how fast they go."""


@dataclass(frozen=True, slots=True)
class _Shortcut:
    """Up to `until`, events of `PASSING_KINDS` matter for the `live` trials alone.

    Every other trial before that has left the state by the time of the place aimed at: a state
    keeps `MAX_FINISHED_TRIALS`, and so many are queued after `until`. The batches under way, which
    it keeps whole, begin after `until`, too.
    """

    until: int
    live: frozenset[str]


class Reading:
    """Reads a journal into a fold. The state is the same whichever way it was reached.

    But for how long trials took that have left the state: where their phases were passed over,
    that is the sum of what the finished trial says itself.
    """

    def __init__(self, reader: JournalReader, fold: Fold | None = None) -> None:
        self._reader = reader
        self.fold = fold or Fold()
        self._shortcut = _Shortcut(0, frozenset())

    @property
    def complete(self) -> bool:
        """Whether the fold has seen all that it needs, so that it may be kept and gone on with."""
        return self.fold.state.seq >= self._shortcut.until

    @property
    def trouble(self) -> str:
        """What of the journal could not be read, in one line; empty: nothing."""
        return self._reader.trouble

    def restart(self, fold: Fold) -> None:
        """Continue from another fold."""
        self.fold = fold
        self._shortcut = _Shortcut(0, frozenset())

    def begin(self, target: int) -> None:
        """The next bites lead to event number `target`: look for a short way there."""
        seq = self.fold.state.seq
        if not self.complete or target - seq < _FAR:
            return
        until = min(
            self._reader.nth_last("trial_queued", MAX_FINISHED_TRIALS, target) - 1,
            self._reader.nth_last("policy_measured", _MEASUREMENTS, target),
            self._reader.nth_last("resources_measured", 1, target),
            self._reader.batches_begun(target),
        )
        if until - seq > _BITE:
            self._shortcut = _Shortcut(until, frozenset(self._reader.live_trials(until)))

    def bite(self, target: int) -> None:
        """Read on towards `target`: some milliseconds of work."""
        fold, short = self.fold, self._shortcut
        seq = fold.state.seq
        if seq < short.until:
            end = min(seq + _WIDE_BITE, short.until)
            fold.apply_all(self._reader.read_lasting(seq, end, short.live))
        else:
            end = min(seq + _BITE, target)
            fold.apply_all(self._reader.read(seq, end - seq))
        fold.pass_over(end)


def state_at_end(reader: JournalReader) -> RunState:
    """The state after the journal's last event."""
    reading = Reading(reader)
    target = reader.last_seq()
    reading.begin(target)
    while reading.fold.state.seq < target:
        reading.bite(target)
    return reading.fold.state


def state_by_kinds(reader: JournalReader, kinds: Sequence[str]) -> RunState:
    """The state that the journal's events of these kinds lead to, all others passed over."""
    fold, after = Fold(), 0
    while entries := reader.read_kinds(kinds, after):
        fold.apply_all(entries)
        after = entries[-1].seq
    return fold.state


def compare_runs(first: RunDirectory, second: RunDirectory) -> Comparison:
    """Read both runs to their ends and compare them, as far as their rows are sound.

    Raises `JournalError` when one can't be read.
    """
    with (
        closing(JournalReader(first, lenient=True)) as one,
        closing(JournalReader(second, lenient=True)) as other,
    ):
        comparison = compare(
            state_at_end(one),
            state_at_end(other),
            (_tally(one), _tally(other)),
            (first.name, second.name),
        )
        troubles = tuple(filter(None, (one.trouble, other.trouble)))
    return replace(comparison, troubles=troubles)


def _tally(reader: JournalReader) -> TaskRewards:
    tally, after = TaskRewards(), 0
    while entries := reader.read_kinds(REWARD_KINDS, after):
        after = entries[-1].seq
        for entry in entries:
            tally.see(entry)
    return tally


SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds of the run in a second of the clock on the wall."""

_SNAPSHOTS = 48
_EVERY = 6000
"""Events between two snapshots, as long as there is room for all of them: one takes as long as
some thousand events do."""


@dataclass(slots=True)
class Playback:
    """Position in a recorded run, in seconds since the epoch, and speed."""

    start: float
    end: float
    position: float
    playing: bool = False
    speed: float = 1.0
    moves: int = 0
    """How often somebody has moved it to another place."""

    def pass_time(self, seconds: float, stop: float | None = None) -> None:
        """Go on by `seconds` of the wall clock. It stands still at `stop`, and at the end."""
        if not self.playing:
            return
        limit = self.end if stop is None or self.position >= stop else min(stop, self.end)
        self.position = min(limit, self.position + seconds * self.speed)
        if self.position >= limit:
            self.playing = False

    def go_to(self, position: float) -> None:
        self.moves += 1
        self.position = min(self.end, max(self.start, position))

    def toggle(self) -> None:
        """Play or pause; at the end, start again."""
        if not self.playing and self.position >= self.end:
            self.position = self.start
        self.playing = not self.playing

    def change_speed(self, steps: int) -> None:
        """Play faster by so many `SPEEDS`, or slower."""
        index = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, index))]

    @property
    def share(self) -> float:
        """Share of the run that lies behind, from 0 to 1."""
        length = self.end - self.start
        return (self.position - self.start) / length if length > 0 else 1.0


class Snapshots:
    """Folds as they stood at some events, a bounded number of them over the whole run.

    Kept in this process's memory alone, which is why pickle may be used.
    """

    def __init__(self, every: int = _EVERY) -> None:
        self._seqs: list[int] = []
        self._folds: list[bytes] = []
        self._every = every

    def keep(self, fold: Fold) -> None:
        """Keep a snapshot, if the last one before it is far enough away."""
        place = bisect_right(self._seqs, fold.state.seq)
        before = self._seqs[place - 1] if place else 0
        if fold.state.seq - before < self._every:
            return
        self._seqs.insert(place, fold.state.seq)
        self._folds.insert(place, pickle.dumps(fold, pickle.HIGHEST_PROTOCOL))
        if len(self._seqs) > _SNAPSHOTS:
            del self._seqs[::2], self._folds[::2]
            self._every *= 2

    def before(self, seq: int) -> Fold:
        """The last fold of no later event than `seq`; an empty one where there is none."""
        place = bisect_right(self._seqs, seq)
        if not place:
            return Fold()
        fold = pickle.loads(self._folds[place - 1])
        assert isinstance(fold, Fold)
        return fold
