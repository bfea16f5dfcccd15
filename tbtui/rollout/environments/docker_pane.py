"""Brings the terminal's log out of a container while it grows, without sharing a directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from tbtui.rollout.environments.docker_cli import client_environment

MAX_PANE_BYTES = 64 << 20
_READ = 1 << 16


class ContainerPane:
    """`tail` in the container, copied to one file of the host up to a limit.

    Whatever becomes of `tail` (the agent may kill it) ends the recording and nothing else.
    """

    def __init__(self, process: asyncio.subprocess.Process, target: Path) -> None:
        self._process = process
        self._target = target
        self._descriptor: int | None = None
        self.received = 0
        """Bytes that came, kept or not."""
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
                while self.received < size and not self._copying.done():
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
                kept = chunk[: max(0, MAX_PANE_BYTES - self.received)]
                self.received += len(chunk)
                self._came.set()
                if kept:
                    self._keep(kept)
        except OSError:
            return  # the host's disk is full: the trial matters more than its log
        finally:
            self._came.set()
            with contextlib.suppress(ProcessLookupError):
                if self._process.returncode is None:
                    self._process.kill()
            await self._process.wait()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _keep(self, data: bytes) -> None:
        if self._descriptor is None:  # an agent that uses no terminal leaves no empty file
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._target, flags, 0o644)
        os.write(self._descriptor, data)
