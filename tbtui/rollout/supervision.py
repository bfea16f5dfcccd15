"""Ends what hangs in a trial, where Harbor has no time limit of its own.

Harbor's own time limits end what reacts to being cancelled. A sandbox's client may not, and some
steps (copying logs and artifacts, tearing down) have no limit at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is too long, in seconds."""

    grace_sec: float = 60.0
    """Beyond a time limit that Harbor, or the agent's budget, enforces."""
    handling_sec: float = 600.0
    """Copying logs and artifacts, and whatever else has no limit of its own."""
    teardown_sec: float = 180.0
    cancel_sec: float = 30.0
    """For a trial to end that was cancelled; it is cancelled again as often as `attempts`."""
    attempts: int = 3
    tick_sec: float = 1.0


@dataclass(frozen=True, slots=True)
class WatchedStretch:
    """What a trial is doing, and how long that may take (None: it has a limit of its own)."""

    name: Hashable
    limit_sec: float | None


class Supervisor:
    """Waits for a trial's task, and ends it when it hangs."""

    def __init__(
        self,
        patience: Patience,
        stretch: Callable[[], WatchedStretch],
        unplug: Callable[[], Awaitable[None]],
    ) -> None:
        """`unplug` ends the sandbox of a trial that does not react to being cancelled."""
        self._patience = patience
        self._stretch = stretch
        self._unplug = unplug
        self.hang: str | None = None
        """What did not come to an end, in words."""
        self.cancelled = False
        """The task that waits was cancelled, and passed it on."""

    async def wait_for(self, work: asyncio.Task[Any]) -> bool:
        """Wait until `work` has ended; False if it had to be left behind.

        Cancelling the caller cancels `work`, and sets `cancelled` instead of being raised.
        """
        try:
            await self._watch(work)
        except asyncio.CancelledError:
            self.cancelled = True
        return work.done() or await self._end(work)

    async def _watch(self, work: asyncio.Task[Any]) -> None:
        current = self._stretch()
        since = asyncio.get_running_loop().time()
        while not work.done():
            await asyncio.wait((work,), timeout=self._patience.tick_sec)
            stretch, now = self._stretch(), asyncio.get_running_loop().time()
            if stretch != current:
                current, since = stretch, now
            if stretch.limit_sec is not None and now - since > stretch.limit_sec:
                self.hang = f"{stretch.name}: no end within {stretch.limit_sec:.0f} s"
                return

    async def _end(self, work: asyncio.Task[Any]) -> bool:
        for attempt in range(self._patience.attempts):
            if attempt == 1:
                # What waits for the sandbox fails once it is gone.
                await self._unplug()
                await self.wait_at_most(work, self._patience.cancel_sec)
            if work.done():
                return True
            work.cancel()
            patience = self._patience.cancel_sec
            if self._stretch().name == TEARDOWN:
                patience = max(patience, self._patience.teardown_sec)
            await self.wait_at_most(work, patience)
        if not work.done() and self.hang is None:
            self.hang = f"{self._stretch().name}: it does not react to being cancelled"
        return work.done()

    async def wait_at_most(self, work: asyncio.Task[Any], seconds: float) -> None:
        """Wait, but no longer than that, or until the caller is cancelled (again)."""
        try:
            await asyncio.wait((work,), timeout=seconds)
        except asyncio.CancelledError:
            self.cancelled = True


TEARDOWN = "tearing the sandbox down"
