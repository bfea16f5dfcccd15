"""Ends a container that writes more than its share, where the engine can't hold it back itself.

Measuring a container's files takes the engine a walk over them, so it is asked only when the disk
has lost space; a disk that can't be seen from here is measured at longer intervals.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tbtui.rollout.environments.docker_cli import run_cli

_LOOK_SEC = 1.0
_REMOTE_SEC = 30.0
_NOTICED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class DiskWatch:
    """Watches one container."""

    engine: Sequence[str]
    container: str
    root: str
    """The engine's directory."""
    limit_bytes: int
    end: Callable[[int], Awaitable[None]]
    """Awaited once with the container's size when that is above the limit."""

    async def run(self) -> None:
        """Until the container is gone or has been ended."""
        free = _free(self.root)
        while True:
            await asyncio.sleep(_LOOK_SEC if free is not None else _REMOTE_SEC)
            if free is not None:
                now = _free(self.root)
                if now is not None and now > free - min(_NOTICED_BYTES, self.limit_bytes // 4):
                    free = max(free, now)
                    continue
                free = now
            size = await self._size()
            if size is None:
                return
            if size > self.limit_bytes:
                await self.end(size)
                return

    async def _size(self) -> int | None:
        """Bytes the container has written; None: it is gone."""
        argv = [*self.engine, "inspect", "--type", "container", "--size"]
        result = await run_cli([*argv, "--format", "{{.SizeRw}}", self.container])
        return int(result.stdout) if result.exit_code == 0 else None


def _free(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
