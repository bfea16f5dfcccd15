"""Decides when a trial may start: concurrency, start rate, and a gate for the whole run."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class Slot:
    """The right to have a trial running; releasing it twice does no harm."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._yielded = False
        self._left = False

    def make_room(self) -> None:
        """Let another trial start, because this one only tears down."""
        if not self._yielded:
            self._yielded = True
            self._admission.stop_working()

    def leave(self) -> None:
        """Release the slot, because the trial has ended."""
        self.make_room()
        if not self._left:
            self._left = True
            self._admission.leave()


class Admission:
    """Lets at most `n_parallel` trials work at once, and starts no more than `per_sec` a second.

    A trial that only tears down makes room for the next one; at most as many tear down as work,
    so that slow tear-downs can't pile up sandboxes. Among those that wait, the trials of earlier
    steps come first: the step that trains next must not wait for one that is sampled ahead.
    """

    def __init__(self, n_parallel: int, per_sec: float) -> None:
        self._working = 0
        self._present = 0
        self._next_start = 0.0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._asked = itertools.count()
        self._open = asyncio.Event()
        self._open.set()
        self.change(n_parallel, per_sec)

    def change(self, n_parallel: int, per_sec: float) -> None:
        """Set other limits from now on; trials that work already may go on."""
        self._most_working = n_parallel
        self._most_present = 2 * n_parallel
        self._interval = 1 / per_sec if per_sec else 0.0
        self._admit()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def close(self) -> None:
        """Start no trial until `open`."""
        self._open.clear()

    def open(self) -> None:
        self._open.set()
        self._admit()

    async def enter(self, step: int = 0) -> Slot:
        """Wait for a slot: earlier steps first, and within a step in the order of asking."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (step, next(self._asked), place))
        self._admit()
        slot = Slot(self)
        try:
            await place
            if self._interval:
                await self._wait_for_turn()
            await self._open.wait()
        except BaseException:
            if place.done() and not place.cancelled():
                slot.leave()
            raise
        return slot

    def _admit(self) -> None:
        while (
            self._waiting
            and self.is_open
            and self._working < self._most_working
            and self._present < self._most_present
        ):
            _, _, place = heapq.heappop(self._waiting)
            if place.done():
                continue  # gave up waiting
            self._working += 1
            self._present += 1
            place.set_result(None)

    def stop_working(self) -> None:
        """Let another trial start in the place of one that only tears down."""
        self._working -= 1
        self._admit()

    def leave(self) -> None:
        """Let one more trial be there: another one is gone."""
        self._present -= 1
        self._admit()

    async def _wait_for_turn(self) -> None:
        now = asyncio.get_running_loop().time()
        start = max(now, self._next_start)
        self._next_start = start + self._interval
        await asyncio.sleep(start - now)
