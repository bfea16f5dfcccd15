"""The event loop that an engine runs on.

Under the app it has a thread of its own (`EngineThread`); without one (`--no-ui`) it is the main
thread's, and the lines have a thread (`run_headless`).
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any

from tbtui.awake import AwakeLoop
from tbtui.command_line import EXIT_INTERRUPTED
from tbtui.engines.awaiting import LoopThread
from tbtui.engines.request import RunRequest
from tbtui.errors import UserError
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.engines.control.run import ControlledRun


class EngineThread(LoopThread):
    """A run on an event loop and thread of its own. Its methods may be called from any thread."""

    def __init__(self, request: RunRequest) -> None:
        super().__init__("engine", AwakeLoop())
        self._request = request
        self._made: asyncio.Future[ControlledRun] = self._loop.create_future()
        """What is asked of the run before that is asked then, in the same order."""
        self._task: asyncio.Task[RunEnd] | None = None
        self._interrupted = False
        self._unattended = False

    @property
    def directory(self) -> RunDirectory:
        return self._request.directory

    @property
    def outlives(self) -> bool:
        return False

    @property
    def steerable(self) -> bool:
        return True

    @property
    def read_only(self) -> str:
        return self._made.result().read_only if self._made.done() else ""

    def submit(self, command: Command) -> None:
        self._ask(lambda run: run.submit(command))

    def take_controls(self) -> None:
        self._ask(lambda run: run.take_controls())

    def interrupt(self) -> None:
        self._call(self._cancel)

    @property
    def unattended(self) -> bool:
        """Whether the app has gone, with its terminal or from it, and the run goes on."""
        return self._unattended

    def hang_up(self) -> bool:
        if self._request.config.on_hangup == "stop":
            return False
        self.detach()
        return True

    def detach(self) -> None:
        """Let the run go on without the app, whatever its settings say of a hang-up."""
        self._unattended = True
        self._ask(lambda run: run.let_go())

    async def see_through(self) -> RunEnd:
        """Wait for the end; a cancelled wait interrupts the run and waits until it has ended."""
        try:
            return await self.ended()
        except asyncio.CancelledError:
            self.interrupt()
            return await self.ended()

    async def _work(self) -> RunEnd:
        # Here, because importing the engine takes longer than painting the app's first frame.
        from tbtui.engines.control.run import ControlledRun
        from tbtui.engines.make_run import prepare

        try:
            make = prepare(self._request)
        except UserError as error:
            return RunEnd("refused", str(error))
        owner = "" if self._unattended else getpass.getuser()
        run = ControlledRun(make(), self.directory, owner)
        self._made.set_result(run)
        self._task = asyncio.create_task(run.run())
        if self._interrupted:
            self._task.cancel()
        try:
            return await self._task
        except asyncio.CancelledError:
            # A task that is cancelled before its first step never gets to say how it ended.
            return RunEnd("interrupted", "ended before it began")

    def _cancel(self) -> None:
        # Cancelling twice would interrupt the clean-up that the first one began.
        if self._task and not self._task.cancelling():
            self._task.cancel()
        self._interrupted = True

    def _ask(self, what: Callable[[ControlledRun], None]) -> None:
        """Call the run, as soon as there is one."""

        def ask() -> None:
            self._made.add_done_callback(lambda made: what(made.result()))

        self._call(ask)


# Without the app

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
