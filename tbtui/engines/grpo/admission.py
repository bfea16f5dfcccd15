"""Who may start a trial, and when: concurrency, start rate, and a gate for the whole run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Slot:
    """The right to have a trial running. Released once, by whoever comes first."""

    def __init__(self, on_yield: Callable[[], None], on_leave: Callable[[], None]) -> None:
        self._on_yield = on_yield
        self._on_leave = on_leave
        self._yielded = False
        self._left = False

    def make_room(self) -> None:
        """Another trial may start: this one only tears down."""
        if not self._yielded:
            self._yielded = True
            self._on_yield()

    def leave(self) -> None:
        """The trial is gone."""
        self.make_room()
        if not self._left:
            self._left = True
            self._on_leave()


class Admission:
    """Lets at most `n_parallel` trials work at once, and starts no more than `per_sec` a second.

    A trial that only tears down makes room for the next one; at most as many tear down as work,
    so that slow tear-downs can't pile up sandboxes.
    """

    def __init__(self, n_parallel: int, per_sec: float) -> None:
        self._working = asyncio.Semaphore(n_parallel)
        self._present = asyncio.Semaphore(2 * n_parallel)
        self._interval = 1 / per_sec if per_sec else 0.0
        self._next_start = 0.0
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def close(self) -> None:
        """Nobody starts until `open`."""
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def enter(self) -> Slot:
        """Wait for a place, in the order of asking."""
        async with _Held(self._present) as present, _Held(self._working) as working:
            await self._open.wait()
            if self._interval:
                await self._wait_for_turn()
                await self._open.wait()
            slot = Slot(self._working.release, self._present.release)
            present.keep()
            working.keep()
            return slot

    async def _wait_for_turn(self) -> None:
        now = asyncio.get_running_loop().time()
        start = max(now, self._next_start)
        self._next_start = start + self._interval
        await asyncio.sleep(start - now)


class _Held:
    """A semaphore that is given back unless it is kept."""

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore = semaphore
        self._kept = False

    def keep(self) -> None:
        self._kept = True

    async def __aenter__(self) -> _Held:
        await self._semaphore.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._kept:
            self._semaphore.release()
