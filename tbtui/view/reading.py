"""Brings a fold to a place in the journal in small reads, or by a short cut to a far place."""

from __future__ import annotations

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
