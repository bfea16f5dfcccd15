"""Runs an engine on the main thread's event loop, for `--no-ui`."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from tbtui.awake import AwakeLoop
from tbtui.command_line import EXIT_INTERRUPTED

_READER_SEC = 10.0
"""How long an interrupted run waits for the reader of its output, once it has ended."""


def run_headless[End](
    work: Coroutine[Any, Any, End],
    follow: Callable[[threading.Event], None],
    hang_up: Callable[[], bool] = lambda: False,
) -> End:
    """Run to the end while `follow` shows the journal, until the event says it is complete.

    `follow` has a thread of its own: a reader who is slow, or reads no more for a while, holds
    nothing up but the lines. They wait in the journal.

    The first ctrl-c or SIGTERM ends the run cleanly; another one ends the process at once (its
    children see that and clean up by themselves). SIGHUP does so too, unless `hang_up`, which is
    called then, says that the run goes on; or the program was started to ignore it (nohup).
    """
    return asyncio.run(_run(work, follow, hang_up), loop_factory=AwakeLoop)


async def _run[End](
    work: Coroutine[Any, Any, End],
    follow: Callable[[threading.Event], None],
    hang_up: Callable[[], bool],
) -> End:
    loop = asyncio.get_running_loop()
    complete = threading.Event()
    task = asyncio.create_task(work)
    following = asyncio.ensure_future(asyncio.to_thread(follow, complete))

    def end() -> None:
        # Cancelling twice would interrupt the clean-up that the first one began.
        if not task.cancelling():
            task.cancel()

    def interrupt() -> None:
        if task.done() or task.cancelling():
            os._exit(EXIT_INTERRUPTED)
        end()

    def hung_up() -> None:
        # It comes more than once, and nobody insists on anything.
        if not hang_up():
            end()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    on_hang_up(loop, hung_up)
    # The journal can't be read, or the terminal has gone and the run is to end with it.
    following.add_done_callback(lambda _: end())
    try:
        return await task
    finally:
        complete.set()
        # An interruption doesn't wait for a reader who may never read again.
        await asyncio.wait({following}, timeout=_READER_SEC if task.cancelling() else None)
        if not following.done():
            os._exit(EXIT_INTERRUPTED)
        await following


def on_hang_up(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call `call` on the loop, while that is open, whenever SIGHUP comes; unless the program was
    started to ignore that.

    A terminal that goes away may send it several times. The loop's own way leaves a moment at its
    end in which the signal kills.
    """

    def came(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(call)

    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, came)
