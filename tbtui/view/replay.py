"""A replay's clock, and snapshots of the fold to go back to. Pure."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from dataclasses import dataclass

from tbtui.view.fold import Fold

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
