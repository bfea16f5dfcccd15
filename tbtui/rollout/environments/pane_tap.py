"""Brings a growing log of the box to the host while it grows, without sharing a directory.

The log's place in the box is a FIFO; the host reads it event by event and appends to a file of its
own, up to a limit, so the box can neither fill the host's disk nor put a link in the host's way.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tbtui.rollout.environments.box import Box

MAX_TAP_BYTES = 64 << 20
_READ = 1 << 16
_DRAIN_READS = 32


class PaneTap:
    """One FIFO of a box, copied to one file of the host."""

    def __init__(self, fifo: int, target: Path) -> None:
        self._fifo = fifo
        self._left = MAX_TAP_BYTES
        self._loop = asyncio.get_running_loop()
        self._path = target
        self._target: int | None = None
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
        if self._target is not None:
            os.close(self._target)
        self._fifo = -1

    def _read(self) -> int:
        try:
            chunk = os.read(self._fifo, _READ)
        except BlockingIOError:
            return 0
        kept = chunk[: self._left]
        self._left -= len(kept)
        if kept:
            try:
                self._keep(kept)
            except OSError:
                self._left = 0  # the host's disk is full: the trial matters more than its log
        return len(chunk)

    def _keep(self, data: bytes) -> None:
        if self._target is None:  # an agent that uses no terminal leaves no empty file
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._target = os.open(self._path, flags, 0o644)
        os.write(self._target, data)
