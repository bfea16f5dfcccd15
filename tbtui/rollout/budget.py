"""A trial's two clocks: where its wall time went, and the active seconds that its agent may use."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

from tbtui.journal.events import PhaseSeconds

_STARVED_SHARE = 0.25
"""Share of a time limit. What is measured is the least that can have been lost."""

Category = Literal["build", "setup", "sampling", "commands", "verifying", "teardown"]


class Stopwatch:
    """Every second of a trial, in exactly one category: the parts add up to the whole.

    While it is held, time is `paused`, whatever the trial was about to do. So are the seconds by
    which `asleep` grows: the clock leaves them out, for nothing ran meanwhile.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        asleep: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._clock = clock
        self._asleep = asleep
        self._asleep_before = asleep()
        self._category: Category = "build"
        self._since = clock()
        self._spent = dict.fromkeys(PhaseSeconds.__struct_fields__, 0.0)
        self._holds = 0

    def enter(self, category: Category) -> Category:
        """Count time under this category from now on; returns the one before."""
        self._settle()
        before, self._category = self._category, category
        return before

    @contextlib.contextmanager
    def during(self, category: Category) -> Iterator[None]:
        """Count time under this category for as long as the block lasts."""
        before = self.enter(category)
        try:
            yield
        finally:
            self.enter(before)

    def hold(self) -> None:
        self._settle()
        self._holds += 1

    def release(self) -> None:
        self._settle()
        self._holds -= 1

    def seconds(self) -> PhaseSeconds:
        """Seconds by category so far. `queue` is not the trial's own, and 0."""
        self._settle()
        asleep = self._asleep() - self._asleep_before
        return PhaseSeconds(**self._spent | {"paused": self._spent["paused"] + asleep})

    def _settle(self) -> None:
        now = self._clock()
        self._spent["paused" if self._holds else self._category] += now - self._since
        self._since = now


def is_starved(lost: float, seconds: float) -> bool:
    """Whether so much of a limit of so many seconds was lost that running out says nothing."""
    return lost > _STARVED_SHARE * seconds


class Budget:
    """Active seconds that an agent may use in one trial; they stand still while held.

    An agent that is run several times in a trial (a task of several steps) spends them together.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lost = 0.0
        """Spent seconds for which the machine served others."""
        self.given_back = 0.0
        """Seconds of those that were added to the budget again: at most as much as it had."""
        self._left = seconds
        self._timer: asyncio.Timeout | None = None
        self._holds = 0
        self._held_since = 0.0
        self._held_for = 0.0
        self._left_when_held: float | None = None
        self._running = asyncio.Event()
        self._running.set()
        self._held = asyncio.Event()
        self._interrupted = False
        self.spent = False
        """The budget ran out."""

    @contextlib.asynccontextmanager
    async def spending(self) -> AsyncIterator[None]:
        """Let the budget run. Raises `TimeoutError` when it runs out, and sets `spent`, or when
        it is interrupted.

        A `TimeoutError` raised inside passes as it is and leaves `spent` alone.
        """
        loop = asyncio.get_running_loop()
        self._left_when_held = self._left if self._holds else None
        timer = asyncio.timeout_at(None if self._holds else loop.time() + self._left)
        self._timer = timer
        try:
            async with timer:
                try:
                    yield
                finally:
                    when = timer.when()
                    if when is not None and not self._interrupted:
                        self._left = max(0.0, when - loop.time())
                    elif self._left_when_held is not None:
                        self._left = self._left_when_held
        finally:
            self._timer = None
            self.spent = timer.expired() and not self._interrupted

    def give_back_starved(self, seconds: float) -> None:
        """Add time that the machine kept from the run which is spending; none while it is held.

        At most as much as the budget had: an agent must not live on a starved machine's account.
        """
        timer = self._timer
        when = timer.when() if timer is not None else None
        if timer is None or when is None or self._holds or self._interrupted:
            return
        self.lost += seconds
        added = min(seconds, self.seconds - self.given_back)
        if added <= 0 or timer.expired():
            return
        self.given_back += added
        self._held_for += added
        timer.reschedule(when + added)

    @property
    def starved(self) -> bool:
        """So much was lost, and so late, that a budget which ran out says nothing."""
        return is_starved(self.lost, self.seconds)

    def interrupt(self) -> None:
        """End the run that is spending, held or not, with a `TimeoutError`."""
        self._interrupted = True
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time())

    @property
    def overdue(self) -> bool:
        """The run that is spending was ended, by the clock or an interruption, and goes on."""
        return self._timer is not None and self._timer.expired()

    @property
    def is_spending(self) -> bool:
        return self._timer is not None

    def active(self) -> float:
        """A clock in seconds that stands still while held."""
        now = asyncio.get_running_loop().time()
        return now - self._held_for - (now - self._held_since if self._holds else 0.0)

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many active seconds."""
        until = self.active() + seconds
        while (left := until - self.active()) > 0:
            if self._holds:
                await self._running.wait()
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._held.wait(), left)

    def hold(self) -> None:
        """Stop the clock until there has been a `release` for every `hold`."""
        self._holds += 1
        if self._holds > 1:
            return
        self._held_since = asyncio.get_running_loop().time()
        self._running.clear()
        self._held.set()
        timer = self._timer
        when = timer.when() if timer is not None else None
        if timer is not None and when is not None and not timer.expired() and not self._interrupted:
            self._left_when_held = when - asyncio.get_running_loop().time()
            timer.reschedule(None)

    def release(self) -> None:
        self._holds -= 1
        if self._holds:
            return
        self._held_for += asyncio.get_running_loop().time() - self._held_since
        self._held.clear()
        self._running.set()
        left, self._left_when_held = self._left_when_held, None
        if self._timer is not None and left is not None and not self._interrupted:
            self._timer.reschedule(asyncio.get_running_loop().time() + left)

    def give_back(self, seconds: float) -> None:
        """Add seconds that were spent, and not by the agent."""
        timer = self._timer
        when = timer.when() if timer is not None else None
        if self._left_when_held is not None:
            self._left_when_held += seconds
        elif timer is None:
            self._left += seconds
        elif when is not None and not timer.expired() and not self._interrupted:
            timer.reschedule(when + seconds)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the clock while the block lasts."""
        self.hold()
        try:
            yield
        finally:
            self.release()
