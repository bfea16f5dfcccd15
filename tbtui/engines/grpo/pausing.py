"""Pauses of the whole run, by people and by outages (of the policy, or of the disk that the run
directory lies on); and waiting through them.

An outage is what keeps a run from going on for a while. While something is out of order no failure
is counted against the run. A pause that an outage began ends with the last outage, unless a person
has paused the run themselves. Where a person resumes it before, what is out of order is tried at
once, and the run goes on until it fails again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from tbtui.engines.grpo.failures import HaltError
from tbtui.engines.trials.steering import Steering
from tbtui.journal.events import (
    AlarmRaised,
    OutageBegan,
    OutageEnded,
    OutageKind,
    RunPaused,
    RunResumed,
)
from tbtui.journal.writer import JournalWriter

_TICK_SEC = 0.2


async def unpaused(seconds: float, goes_on: Callable[[], bool]) -> None:
    """Sleep for so many seconds; time in which the run is paused doesn't count.

    However short that is, it is over only while the run goes on.
    """
    while True:
        await asyncio.sleep(min(seconds, _TICK_SEC) or _TICK_SEC)
        if goes_on():
            seconds -= _TICK_SEC
            if seconds <= 0:
                return


@dataclass(frozen=True, slots=True)
class OutageCause:
    """What failed and where; what a person can do, and what is retried automatically. One line
    each."""

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}"


class Pausable(Protocol):
    """A run that outages can pause."""

    def pause_for_outage(self, reason: str) -> None:
        """Pause unless the run is paused already."""
        ...

    def resume_after_outage(self) -> None:
        """Go on, unless a person has paused the run or let it go on since."""
        ...


@dataclass(slots=True)
class _Outage:
    cause: OutageCause
    since: float
    journalled: bool = False
    pausing: bool = False


class Outages:
    """The outages that there are now. Used on the engine's loop."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._run: Pausable | None = None
        self._outages: dict[OutageKind, _Outage] = {}
        self._none = asyncio.Event()
        self._none.set()
        self._lifts: list[Callable[[], None]] = []

    def steer(self, run: Pausable) -> None:
        """Pause and resume this run from now on."""
        self._run = run
        for outage in self._outages.values():
            if outage.pausing:
                run.pause_for_outage(str(outage.cause))

    @property
    def on(self) -> bool:
        """Whether there is an outage, during which a failure says nothing about the run."""
        return bool(self._outages)

    def has(self, what: OutageKind) -> bool:
        return what in self._outages

    def begin(
        self, what: OutageKind, cause: OutageCause, *, tell: bool = True, pause: bool = True
    ) -> None:
        """Note that something is out of order, or still is. `tell` journals it, `pause` pauses the
        run: either may come with a later call."""
        outage = self._outages.setdefault(what, _Outage(cause, time.monotonic()))
        self._none.clear()
        if tell and (not outage.journalled or outage.cause.remedy != cause.remedy):
            outage.journalled = True
            text, remedy = cause.text, cause.remedy
            self._journal.append(OutageBegan(what=what, text=text, remedy=remedy))
        outage.cause = cause
        if pause and not outage.pausing:
            outage.pausing = True
            if self._run is not None:
                self._run.pause_for_outage(str(cause))

    def end(self, what: OutageKind, text: str = "") -> None:
        """Note that something is in order again, or always was."""
        outage = self._outages.pop(what, None)
        if outage is None:
            return
        if outage.journalled:
            seconds = time.monotonic() - outage.since
            self._journal.append(OutageEnded(what=what, seconds=seconds, text=text))
        if not any(other.pausing for other in self._outages.values()) and self._run is not None:
            self._run.resume_after_outage()
        if not self._outages:
            self._none.set()

    async def over(self) -> None:
        """Wait until there is no outage."""
        await self._none.wait()

    def on_lift(self, call: Callable[[], None]) -> None:
        """Add what tries at once what is out of order, as a person who resumes the run asks."""
        self._lifts.append(call)

    def lift(self) -> None:
        """Try at once what is out of order: a person resumes the run."""
        for outage in self._outages.values():
            outage.pausing = False  # a further look pauses it again
        for call in self._lifts:
            call()


class RunPause:
    """The pause of the whole run: of a person, an alarm or an outage."""

    def __init__(
        self, steering: Steering, journal: JournalWriter, outages: Outages, *, paused: bool
    ) -> None:
        """`paused`: the run has been since before there was an engine."""
        self._steering = steering
        self._journal = journal
        self._outages = outages
        self._for_outage = False
        self._begun, self._over = asyncio.Event(), asyncio.Event()
        (self._begun if paused else self._over).set()
        outages.steer(self)
        if self.on:
            steering.hold()

    @property
    def on(self) -> bool:
        return self._begun.is_set()

    def begin(self, verb: Literal["pause", "freeze"], reason: str = "") -> None:
        """Pause the whole run. `reason`: of an alarm that does; a person gives none."""
        self._for_outage = False
        self._begin(verb, reason)

    def raise_alarms(self, *alarms: AlarmRaised) -> None:
        """Journal alarms, and do what each leads to.

        Raises:
            HaltError: one ends the run.
        """
        for alarm in alarms:
            self._journal.append(alarm)
            if alarm.action == "pause":
                self.begin("pause", alarm.text)
            elif alarm.action == "halt":
                raise HaltError(f"{alarm.text} (on_alarm.{alarm.alarm}=halt)")

    def pause_for_outage(self, reason: str) -> None:
        """Implements `Pausable`."""
        if not self.on:
            self._for_outage = True
            self._begin("pause", reason)

    def _begin(self, verb: Literal["pause", "freeze"], reason: str) -> None:
        self._begun.set()
        self._over.clear()
        self._steering.hold(verb)
        self._journal.append(RunPaused(reason=reason))

    def resume_after_outage(self) -> None:
        """Implements `Pausable`."""
        if self._for_outage:
            self.end()

    def end(self) -> None:
        """Let the run go on."""
        self._for_outage = False
        self._over.set()
        self._begun.clear()
        self._steering.release()
        self._journal.append(RunResumed())

    def try_again(self) -> None:
        """Try at once what is out of order: a person has resumed the run."""
        self._outages.lift()

    async def begun(self) -> None:
        await self._begun.wait()

    async def over(self) -> None:
        await self._over.wait()
