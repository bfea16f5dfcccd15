"""Watches the disk that the run directory lies on: where it is full or gone, an outage begins."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from pathlib import Path

from tbtui.engines.grpo.pausing import OutageCause, Outages
from tbtui.invocation import to_type
from tbtui.journal.writer import JournalWriter

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


def _by_itself(run: Path) -> str:
    return (
        f"the run then resumes automatically (`P`, or `{to_type('ctl', 'run', 'resume', run)}`,"
        f" tries at once); ended now, `{to_type('run', '--resume', run)}` goes on from here later"
    )


class StorageGuard:
    """Checks that the run directory and its journal can be written, until it is cancelled."""

    def __init__(self, directory: Path, journal: JournalWriter, outages: Outages) -> None:
        self._directory = directory
        self._reserve = directory / _RESERVE
        self._journal = journal
        self.outages = outages
        self._on_stderr = False
        """The outage has been written there, for want of a journal."""
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
                f"mend that; {_by_itself(self._directory)}",
            )
        if cause is None:
            if self.outages.has("storage"):
                await asyncio.to_thread(_reserve, self._reserve)
            self._on_stderr = False
            self.outages.end("storage", f"{self._directory} can be written again")
        else:
            self.outages.begin("storage", cause)
            if self._journal.blocked:
                await asyncio.to_thread(_remove, self._reserve)
                if not self._journal.flush() and not self._on_stderr:
                    # Without an app, and in its log with one: the journal can't say it.
                    self._on_stderr = True
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
        return OutageCause(text, f"bring its file system back; {_by_itself(self._directory)}")


def cause_in(directory: Path) -> OutageCause | None:
    """What keeps files from being written there; None for nothing. Blocks."""
    try:
        free, least = _room(directory)
        if free < least:
            has = f"{directory} has {_megabytes(free)} left"
            return OutageCause(has, f"free {_megabytes(least)} there; {_by_itself(directory)}")
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
    return OutageCause(text, f"{remedy}; {_by_itself(directory)}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e8 else f"{count / 1e9:.1f} GB"
