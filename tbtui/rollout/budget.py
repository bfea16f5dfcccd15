"""A trial's time: where it went, how much of it the agent may use, and what is given back.

`Stopwatch` is the wall time by category, `Budget` the active seconds that the agent may use, and
`Starvation` what a starved machine takes from the trial: measured every second, and given back.

A trial on a crowded machine loses time to its neighbours; it must not lose its reward to them. What
counts is how late the machine serves a process that wants next to nothing, because only that can't
be the agent's own doing:

- the first process of the trial's box, which goes before all others of the box, waits for the CPU
  (the kernel's own count, its run delay) for more than a fifth of the time. It does not count what
  it waits for while the box itself keeps the machine busy (`box_watch`), nor anything once the
  box was over its own limits: an agent that starves itself gets nothing back;
- the worker's event loop is late by more than a quarter of a second in a second;
- the hypervisor took more than a fifth of the machine's time (`steal` in /proc/stat).

The largest of the three is given back to the trial's budget, up to as much as the budget was. What
a verifier loses is only counted: one that ran out of time on a starved machine says nothing. A
machine that is shared by many and serves all of them in turn reaches none of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Literal

from tbtui.journal.events import PhaseSeconds
from tbtui.rollout.environments.base import SandboxError, SandboxLostError

_STARVED_SHARE = 0.25
"""Share of a time limit. What is measured is the least that can have been lost."""

Category = Literal["build", "setup", "sampling", "commands", "verifying", "teardown"]


class Stopwatch:
    """Every second of a trial, in exactly one category: the parts add up to the whole.

    While it is held, time is `paused`, and while it is delayed, `delayed`, whatever the trial was
    about to do. The seconds by which `asleep` grows are `paused`: the clock leaves them out, for
    nothing ran meanwhile.
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
        self._delays = 0

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

    def delay(self) -> None:
        """Count time as delayed until there has been a `go_on` for every `delay`."""
        self._settle()
        self._delays += 1

    def go_on(self) -> None:
        self._settle()
        self._delays -= 1

    def seconds(self) -> PhaseSeconds:
        """Seconds by category so far. `queue` is not the trial's own, and 0."""
        self._settle()
        asleep = self._asleep() - self._asleep_before
        return PhaseSeconds(**self._spent | {"paused": self._spent["paused"] + asleep})

    def _settle(self) -> None:
        now = self._clock()
        aside = "paused" if self._holds else "delayed" if self._delays else None
        self._spent[aside or self._category] += now - self._since
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


# What a starved machine takes

_TICK_SEC = 1.0
_LATE_SEC = 0.25
_STOLEN_SHARE = 0.2
_LAST_LOOK_SEC = 10.0


class MachineStarvedError(SandboxLostError):
    """The machine kept so much time from a trial that running out of it says nothing."""


class Starvation:
    """Watches over one trial's time."""

    def __init__(
        self,
        budget: Budget,
        stalled: Callable[[], Awaitable[float | None]],
        stat: Path = Path("/proc/stat"),
    ) -> None:
        """
        Args:
            budget: What time is given back to.
            stalled: Seconds for which others kept the sandbox from the CPU, since its start; None
                once the sandbox has been over its own limits, which settles whose doing it is.
            stat: The machine's account of its time.
        """
        self._budget = budget
        self._ask = stalled
        self._stat = stat
        self._stalled = 0.0
        self.lost = 0.0
        """Seconds that the machine kept from the trial, since its start."""
        self.own_doing = False
        """The sandbox was over its own limits: nothing is given back any more."""
        self._stolen, self._total = _machine_time(stat)

    async def run(self) -> None:
        """Measure every second until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK_SEC)
            await self.look(time.monotonic() - began - _TICK_SEC, _TICK_SEC)

    async def look(self, late_sec: float = 0.0, seconds: float = 0.0) -> float:
        """Count what was lost since the last look, and give it back to a budget that is running.

        Args:
            late_sec: By how much the event loop was late since then.
            seconds: How long ago that was to be.

        Returns:
            Seconds.
        """
        lost = max(late_sec if late_sec > _LATE_SEC else 0.0, self._stolen_sec(seconds + late_sec))
        stalled: float | None = self._stalled
        with contextlib.suppress(SandboxError):  # there is none, yet or any more
            stalled = await self._ask()
        if stalled is None:
            self.own_doing = True
            return 0.0
        lost, self._stalled = max(lost, stalled - self._stalled), stalled
        self.lost += lost
        if lost > 0:
            self._budget.give_back_starved(lost)
        return lost

    async def check(self) -> None:
        """Check whether the machine is why a trial ran out of time.

        Raises:
            MachineStarvedError: the machine is to blame.
        """
        try:
            async with asyncio.timeout(_LAST_LOOK_SEC):
                self._budget.lost += await self.look()  # it is not running any more
        except TimeoutError as error:
            # Nor could a verifier run in it.
            raise MachineStarvedError(
                f"its sandbox does not answer within {_LAST_LOOK_SEC:.0f} s"
            ) from error
        if self._budget.starved and not self.own_doing:
            raise MachineStarvedError(
                f"others kept the CPU from it for {self._budget.lost:.0f} s"
                f" of a budget of {self._budget.seconds:.0f} s"
            )

    def _stolen_sec(self, seconds: float) -> float:
        stolen, total = _machine_time(self._stat)
        before = self._stolen, self._total
        self._stolen, self._total = stolen, total
        share = (stolen - before[0]) / max(1, total - before[1])
        return share * seconds if share > _STOLEN_SHARE else 0.0


def _machine_time(stat: Path) -> tuple[int, int]:
    """Ticks that the hypervisor took, and all ticks, since the machine's start."""
    try:
        with stat.open() as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except OSError:
        return 0, 0
    return ticks[7] if len(ticks) > 7 else 0, sum(ticks)
