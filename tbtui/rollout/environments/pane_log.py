"""Brings the terminal's log out of a box or a container while it grows.

No directory is shared. In a box the log's place is a FIFO, in a container `tail` reads it; the host
appends what comes to a file of its own, up to a limit, so neither can fill the host's disk or put a
link in the host's way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.docker_cli import client_environment

MAX_PANE_BYTES = 64 << 20
_READ = 1 << 16
_DRAIN_READS = 32


class _HostFile:
    """A file of the host that takes the first `MAX_PANE_BYTES` of a log."""

    def __init__(self, path: Path) -> None:
        self.received = 0
        """Bytes that came, kept or not."""
        self._path = path
        self._left = MAX_PANE_BYTES
        self._descriptor: int | None = None

    def add(self, chunk: bytes) -> None:
        self.received += len(chunk)
        kept = chunk[: self._left]
        self._left -= len(kept)
        if not kept:
            return
        try:
            if self._descriptor is None:  # an agent that uses no terminal leaves no empty file
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o644)
            os.write(self._descriptor, kept)
        except OSError:
            self._left = 0  # the host's disk is full: the trial matters more than its log

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PaneTap:
    """One FIFO of a box, copied to one file of the host."""

    def __init__(self, fifo: int, target: Path) -> None:
        self._fifo = fifo
        self._file = _HostFile(target)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fifo, self._read)

    @staticmethod
    async def open(box: Box, path: str, target: Path) -> PaneTap:
        """Makes the FIFO at `path` in the box and starts copying to the file `target`."""
        target.parent.mkdir(parents=True, exist_ok=True)
        return PaneTap(await box.open_fifo(path), target)

    def drain(self) -> None:
        """Takes what has been written so far, without being held by what goes on writing."""
        for _ in range(_DRAIN_READS):
            if self._fifo < 0 or not self._read():
                return

    def close(self) -> None:
        """Takes the rest and stops. Idempotent."""
        if self._fifo < 0:
            return
        self.drain()
        self._loop.remove_reader(self._fifo)
        os.close(self._fifo)
        self._file.close()
        self._fifo = -1

    def _read(self) -> int:
        try:
            chunk = os.read(self._fifo, _READ)
        except BlockingIOError:
            return 0
        self._file.add(chunk)
        return len(chunk)


class ContainerPane:
    """`tail` in the container, copied to one file of the host up to a limit.

    Whatever becomes of `tail` (the agent may kill it) ends the recording and nothing else.
    """

    def __init__(self, process: asyncio.subprocess.Process, target: Path) -> None:
        self._process = process
        self._file = _HostFile(target)
        self._came = asyncio.Event()
        self._copying = asyncio.create_task(self._copy())

    @staticmethod
    async def open(engine: Sequence[str], container: str, path: str, target: Path) -> ContainerPane:
        """Makes the file `path` in the container and starts copying it to `target`."""
        # By descriptor, not by name: what is put in the file's place later is not followed.
        script = 'umask 0; : > "$0"; exec tail -c +1 -f "$0"'
        process = await asyncio.create_subprocess_exec(
            *engine,
            *("exec", "-u", "0", container, "sh", "-c", script, path),
            env=client_environment(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_READ,
        )
        return ContainerPane(process, target)

    async def catch_up(self, size: int, timeout_sec: float) -> None:
        """Waits until `size` bytes have come, or copying has ended, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                while self._file.received < size and not self._copying.done():
                    self._came.clear()
                    await self._came.wait()

    async def close(self) -> None:
        """Stops. Idempotent."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await asyncio.shield(self._copying)

    async def _copy(self) -> None:
        assert self._process.stdout is not None
        try:
            while chunk := await self._process.stdout.read(_READ):
                self._file.add(chunk)
                self._came.set()
        finally:
            self._came.set()
            with contextlib.suppress(ProcessLookupError):
                if self._process.returncode is None:
                    self._process.kill()
            await self._process.wait()
            self._file.close()
