"""A pause of the whole run, and waiting: through pauses, or unless something else comes first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

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
    """Wait for so long; seconds in which the run does not go on don't count.

    However short that is, it is over only while the run goes on.
    """
    while True:
        await asyncio.sleep(min(seconds, _TICK_SEC) or _TICK_SEC)
        if goes_on():
            seconds -= _TICK_SEC
            if seconds <= 0:
                return


@contextlib.asynccontextmanager
async def running[T](work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """`work` as a task, which has ended when the context is left."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def comes_before(other: Coroutine[Any, Any, object], task: asyncio.Task[Any]) -> bool:
    """Whether `other` is done before `task`; if not, it is cancelled. Raises what `other` raises.

    Where both are done, `task` was first.
    """
    async with running(other) as first:
        await asyncio.wait((first, task), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return False
        first.result()
        return True
