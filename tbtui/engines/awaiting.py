"""Work beside other work: waited for, ended with what it is for, and watched while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from tbtui.journal.database import JournalError
from tbtui.journal.events import AnyEvent, Noted

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def running[T](work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run `work` as a task that has ended when the context ends."""
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


@contextlib.asynccontextmanager
async def in_background(
    work: Coroutine[Any, Any, None], lost: str, record: Callable[[AnyEvent], object]
) -> AsyncIterator[None]:
    """Monitor a run meanwhile; if `work` fails the journal says so, and the run goes on without.

    `lost`: what is missing then, as the beginning of a sentence.
    """

    def over(task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("%s any more", lost, exc_info=error)
        text = f"{lost} any more: {type(error).__name__}: {error} (see log.txt)"
        with contextlib.suppress(JournalError):  # the trainer meets that too
            record(Noted(level="warning", text=text))

    task = asyncio.create_task(work)
    task.add_done_callback(over)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
