"""An event loop whose clock stands still while its process does not run.

A machine that sleeps, a paused virtual machine, a stopped process: afterwards every time limit that
ran meanwhile would be over at once, and an agent that was never given its time would be scored as
one that took too long. Linux's CLOCK_MONOTONIC stands still while the machine is suspended, but not
while a process is stopped or its virtual machine is paused; CLOCK_BOOTTIME counts all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TICK_SEC = 0.5
ASLEEP_SEC = 5.0
"""A gap between two looks at the clock, a tick apart, that is no mere load of the machine."""


class AwakeClock:
    """Seconds of CLOCK_MONOTONIC, without gaps between two looks of more than `ASLEEP_SEC`.

    Looked at once a tick at least while the process runs, or idling counts as sleep too.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._monotonic = monotonic
        self._boottime = boottime
        self._last = monotonic()
        self._suspended_before = boottime() - self._last
        self._left_out = 0.0
        """Seconds of the monotonic clock that don't count."""
        self._asleep = 0.0

    def time(self) -> float:
        """Seconds since a fixed moment, without the time asleep."""
        now = self._monotonic()
        gap = now - self._last
        if gap > ASLEEP_SEC:
            self._left_out += gap
            self._asleep += gap
        self._last = now
        return now - self._left_out

    def asleep(self) -> float:
        """Seconds asleep since the clock was made: suspended, stopped or paused."""
        self.time()
        suspended = self._boottime() - self._monotonic()
        if (gap := suspended - self._suspended_before) > ASLEEP_SEC:
            # A suspended machine stops the monotonic clock: nothing has to be left out.
            self._asleep += gap
        self._suspended_before = suspended
        return self._asleep


class AwakeLoop(asyncio.SelectorEventLoop):
    """An event loop on an `AwakeClock`: all its time limits stand still while it can't run."""

    def __init__(self) -> None:
        self.clock = AwakeClock()
        super().__init__()
        self._tick()

    def time(self) -> float:
        return self.clock.time()

    def _tick(self) -> None:
        # Without it a loop that waits for long would take its own idling for sleep.
        self.call_later(TICK_SEC, self._tick)
