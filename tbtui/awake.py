"""An event loop whose clock stands still while its process does not run.

A machine that sleeps, a paused virtual machine, a stopped process: afterwards every time limit that
ran meanwhile would be over at once, and an agent that was never given its time would be scored as
one that took too long. Python's monotonic clock stands still while the machine is suspended, but
not while a process is stopped or its virtual machine is paused; another clock counts all of it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

if sys.platform == "linux":
    _SINCE_BOOT = time.CLOCK_BOOTTIME
else:
    # A Mac's goes on in its sleep, where Python's own monotonic clock does not.
    _SINCE_BOOT = time.CLOCK_MONOTONIC
TICK_SEC = 0.5
ASLEEP_SEC = 5.0
"""A gap between two looks at the clock, a tick apart, that is no mere load of the machine."""
_SWITCH_SEC = 0.0005
"""How long a thread that computes keeps the loop waiting, each time that it wants to go on, which
is after each of its system calls. The interpreter's default is ten times as long."""
_AT_WORK = 0.25
"""Share of a gap that a process which computes has the processor for, on a loaded machine too."""


class AwakeClock:
    """Seconds of the monotonic clock, without gaps between two looks of more than `ASLEEP_SEC` in
    which the process did not run: one that has worked through a gap has only not looked.

    Has to `tick` while the process runs, or idling counts as sleep too.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        boottime: Callable[[], float] = lambda: time.clock_gettime(_SINCE_BOOT),
        worked: Callable[[], float] = time.process_time,
    ) -> None:
        """`worked`: seconds for which the process has had a processor."""
        self._monotonic = monotonic
        self._boottime = boottime
        self._worked = worked
        self._worked_before = worked()
        self._last = monotonic()
        self._suspended_before = boottime() - self._last
        self._left_out = 0.0
        """Seconds of the monotonic clock that don't count."""
        self._asleep = 0.0

    def time(self) -> float:
        """Seconds since a fixed moment, without the time asleep."""
        now = self._monotonic()
        gap = now - self._last
        if gap > ASLEEP_SEC and self._worked() - self._worked_before < _AT_WORK * gap:
            self._left_out += gap
            self._asleep += gap
        self._last = now
        return now - self._left_out

    def tick(self) -> None:
        """Look, and note how much the process has worked so far."""
        self.time()
        self._worked_before = self._worked()

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
    """An event loop on an `AwakeClock`: all its time limits stand still while it can't run.

    Threads of its process that compute give way to it soon.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(_SWITCH_SEC)
        self.clock = AwakeClock()
        super().__init__()
        self._tick()

    def time(self) -> float:
        return self.clock.time()

    def _tick(self) -> None:
        # Without it a loop that waits for long would take its own idling for sleep.
        self.clock.tick()
        self.call_later(TICK_SEC, self._tick)
