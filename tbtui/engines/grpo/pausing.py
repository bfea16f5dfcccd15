"""Pauses of the whole run, by people and by outages (of the policy, or of the disk that the run
directory lies on, which is watched here); and waiting through them.

An outage is what keeps a run from going on for a while. While something is out of order no failure
is counted against the run. A pause that an outage began ends with the last outage, unless a person
has paused the run themselves. Where a person resumes it before, what is out of order is tried at
once, and the run goes on until it fails again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tbtui.journal.events import OutageBegan, OutageEnded, OutageKind
from tbtui.journal.writer import JournalWriter

_TICK_SEC = 0.2


class Pause:
    """Whether the run is paused, and when that changes."""

    def __init__(self, paused: bool) -> None:
        self._begun, self._over = asyncio.Event(), asyncio.Event()
        (self._begun if paused else self._over).set()

    @property
    def on(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        self._begun.set()
        self._over.clear()

    def end(self) -> None:
        self._over.set()
        self._begun.clear()

    async def begun(self) -> None:
        await self._begun.wait()

    async def over(self) -> None:
        await self._over.wait()


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


PERIOD_SEC = 5.0
_FIRST_SEC, _LONGEST_SEC = 0.5, 15.0
"""Between two looks while something is wrong."""
_HANG_SEC = 30.0
"""A file system that takes longer for one small file is out of reach."""
_RESERVE = ".reserve"
_RESERVE_BYTES = 1 << 20
"""Kept so that a full disk still has room for the journal to say that it is full."""
_PROBE = ".writable"
_PROBE_BYTES = 1 << 16
_LEAST_BYTES = 256 << 20
_LEAST_SHARE = 0.02
"""Free share that is enough on a file system smaller than 13.4 GB."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LOST = frozenset(
    {errno.EIO, errno.ESTALE, errno.ENOENT, errno.ENOTCONN, errno.ENXIO, errno.ENODEV}
)
_BY_ITSELF = (
    "the run then resumes automatically (`P`, or `tbtui ctl run resume`, tries at once); ended now,"
    " `tbtui run --resume` goes on from here later"
)


class StorageGuard:
    """Checks that the run directory and its journal can be written, until it is cancelled."""

    def __init__(self, directory: Path, journal: JournalWriter, outages: Outages) -> None:
        self._directory = directory
        self._reserve = directory / _RESERVE
        self._journal = journal
        self._outages = outages
        self._told = False
        """On stderr, of this outage."""
        self._wake = asyncio.Event()
        self._hanging: asyncio.Task[OutageCause | None] | None = None
        journal.on_blocked = self._wake.set
        outages.on_lift(self._wake.set)

    async def run(self) -> None:
        await asyncio.to_thread(_reserve, self._reserve)
        try:
            await self._look_on()
        finally:
            _remove(self._reserve)

    async def _look_on(self) -> None:
        wait = PERIOD_SEC
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait)
                wait = 0.0
            self._wake.clear()
            if not await self.check():
                wait = PERIOD_SEC
            else:
                wait = min(max(_FIRST_SEC, 2 * wait), _LONGEST_SEC)

    async def check(self) -> bool:
        """Check now; returns whether something is wrong."""
        cause = await self._look()
        if not self._journal.flush() and cause is None:
            cause = OutageCause(
                f"{self._directory}: the journal can't be written ({self._journal.blocked})",
                f"mend that; {_BY_ITSELF}",
            )
        if cause is None:
            if self._outages.has("storage"):
                await asyncio.to_thread(_reserve, self._reserve)
            self._told = False
            self._outages.end("storage", f"{self._directory} can be written again")
        else:
            self._outages.begin("storage", cause)
            if self._journal.blocked:
                await asyncio.to_thread(_remove, self._reserve)
                if not self._journal.flush() and not self._told:
                    # Without an app, and in its log with one: the journal can't say it.
                    self._told = True
                    sys.stderr.write(f"tbtui: {cause}\n")
                    sys.stderr.flush()
        return cause is not None

    async def _look(self) -> OutageCause | None:
        # In a thread, and not in one more as long as the last one hangs.
        if self._hanging is None or self._hanging.done():
            self._hanging = asyncio.create_task(asyncio.to_thread(cause_in, self._directory))
        # Another caller may begin the next look before this one goes on.
        looking = self._hanging
        done, _ = await asyncio.wait((looking,), timeout=_HANG_SEC)
        if done:
            return looking.result()
        text = f"{self._directory} does not answer"
        return OutageCause(text, f"bring its file system back; {_BY_ITSELF}")


def cause_in(directory: Path) -> OutageCause | None:
    """What keeps files from being written there; None for nothing. Blocks."""
    try:
        free, least = _room(directory)
        if free < least:
            has = f"{directory} has {_megabytes(free)} left"
            return OutageCause(has, f"free {_megabytes(least)} there; {_BY_ITSELF}")
        _write(directory / f"{_PROBE}-{os.getpid()}")
    except OSError as error:
        return _cause(directory, error)
    return None


def _room(directory: Path) -> tuple[int, int]:
    """Bytes that are free, and how many should be."""
    stat = os.statvfs(directory)
    blocks = stat.f_bfree if os.geteuid() == 0 else stat.f_bavail
    whole = stat.f_blocks * stat.f_frsize
    return blocks * stat.f_frsize, min(_LEAST_BYTES, int(whole * _LEAST_SHARE))


def _write(path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)


def _reserve(path: Path) -> None:
    """Set some room aside; where there is none, the run goes without."""
    with contextlib.suppress(OSError):
        if not path.exists():
            path.write_bytes(b"\0" * _RESERVE_BYTES)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _cause(directory: Path, error: OSError) -> OutageCause:
    why = error.strerror or str(error)
    if error.errno in _FULL:
        text, remedy = f"{directory} is full ({why})", "free some room there"
    elif error.errno == errno.EROFS:
        text, remedy = f"{directory} is read-only", "mount it read-write again"
    elif error.errno in _LOST:
        text, remedy = f"{directory} can't be reached ({why})", "bring its file system back"
    else:
        text, remedy = f"{directory} can't be written ({why})", "mend that"
    return OutageCause(text, f"{remedy}; {_BY_ITSELF}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e8 else f"{count / 1e9:.1f} GB"
