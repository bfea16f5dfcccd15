"""Runs the engine on a thread and event loop of its own, beside whatever owns the main thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import getpass
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tbtui.awake import AwakeLoop
from tbtui.engines.request import RunRequest
from tbtui.errors import UserError
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.engines.control.run import ControlledRun


class EngineThread:
    """A run on an event loop and thread of its own. Its methods may be called from any thread."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._end: concurrent.futures.Future[RunEnd] = concurrent.futures.Future()
        self._loop = AwakeLoop()
        self._made: asyncio.Future[ControlledRun] = self._loop.create_future()
        """What is asked of the run before that is asked then, in the same order."""
        self._task: asyncio.Task[RunEnd] | None = None
        self._interrupted = False
        self._unattended = False
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

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

    def start(self) -> None:
        self._thread.start()

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

    async def ended(self) -> RunEnd:
        # Without the shield, giving up the wait would cancel the future.
        return await asyncio.shield(asyncio.wrap_future(self._end))

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                end = runner.run(self._watched())
        except BaseException as error:
            self._end.set_exception(error)
            raise
        self._end.set_result(end)

    async def _watched(self) -> RunEnd:
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

    def _call(self, what: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)
