"""Runs the engine on the main thread's event loop, for `--no-ui`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from tbtui.engines.make_run import AnyRun
from tbtui.journal.commands import RunEnd

EXIT_INTERRUPTED = 130


def run_headless(run: AnyRun, follow: Callable[[asyncio.Event], Awaitable[None]]) -> RunEnd:
    """Run to the end while `follow` shows the journal, until the event says it is complete.

    The first ctrl-c or SIGTERM ends the run cleanly; another one ends the process at once (its
    children see that and clean up by themselves).
    """
    return asyncio.run(_run(run, follow))


async def _run(run: AnyRun, follow: Callable[[asyncio.Event], Awaitable[None]]) -> RunEnd:
    loop = asyncio.get_running_loop()
    complete = asyncio.Event()
    task = asyncio.create_task(run.run())
    following = asyncio.ensure_future(follow(complete))

    def interrupt() -> None:
        if task.cancelling():
            os._exit(EXIT_INTERRUPTED)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    # Nobody left to show it to: the run ends too.
    following.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    finally:
        complete.set()
        await following
