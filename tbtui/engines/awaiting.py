"""Work beside other work: on a thread of its own, waited for, ended with what it is for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from tbtui.journal.commands import RunEnd
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


class LoopThread:
    """An event loop on a thread of its own, until a run has ended."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._end: concurrent.futures.Future[RunEnd] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    @abstractmethod
    async def _work(self) -> RunEnd:
        """All that happens on the loop."""

    def start(self) -> None:
        self._thread.start()

    async def ended(self) -> RunEnd:
        # Without the shield, giving up the wait would cancel the future.
        return await asyncio.shield(asyncio.wrap_future(self._end))

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                end = runner.run(self._work())
        except BaseException as error:
            self._end.set_exception(error)
            raise
        self._end.set_result(end)

    def _call(self, what: Callable[[], object]) -> None:
        """Call on the loop, from any thread; nothing happens once the loop is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)
