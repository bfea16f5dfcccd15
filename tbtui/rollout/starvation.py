"""Time that a starved machine takes from a trial: measured every second, and given back.

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
from collections.abc import Awaitable, Callable
from pathlib import Path

from tbtui.rollout.budget import Budget
from tbtui.rollout.environments.errors import SandboxError, SandboxLostError

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
