"""A run with a control socket: whatever engine runs it, and whatever shows it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from tbtui.engines.control.address import bind
from tbtui.engines.control.server import Client, Controls, ControlServer
from tbtui.engines.make_run import AnyRun
from tbtui.journal.commands import RUN, Command, RunEnd
from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory, registered, writer

log = logging.getLogger(__name__)


class ControlledRun:
    """An `AnyRun` that serves another one's control socket, on the event loop of `run`."""

    def __init__(self, run: AnyRun, directory: RunDirectory, owner: str = "") -> None:
        """`owner`: who has an app in this very process, and the controls to begin with; empty:
        there is none."""
        self._run = run
        self._directory = directory
        self._controls = Controls()
        self._own = Client(owner, stays=True)
        if owner:
            self._controls.take(self._own)
        self._server = ControlServer(
            directory.name, self._controls, self._carry_out, self._give_back
        )
        self._typists: set[str] = set()
        """Who may have taken trials over."""
        self._task: asyncio.Task[object] | None = None

    @property
    def read_only(self) -> str:
        """Why the app in this process may not command now; empty: it may."""
        return self._controls.refusal(self._own)

    def take_controls(self) -> None:
        """Take the controls for the app in this process. Raises `JournalError`."""
        if not self._controls.held_by(self._own):
            self._server.take(self._own)

    def let_go(self) -> None:
        """Release the controls when the app in this process ends."""
        self._server.release(self._own)

    def submit(self, command: Command) -> None:
        """Carry out a command of the app in this process. Raises `JournalError`."""
        if refusal := self.read_only:
            # The app knows, and asks no more once it has drawn that.
            log.info("%s %s is not carried out: %s", command.verb, command.target, refusal)
        else:
            self._carry_out(command)

    def _give_back(self, actor: str) -> None:
        """Give back what a client that has lost the controls had taken over."""
        if actor in self._typists:
            self._typists.discard(actor)
            try:
                self._run.submit(Command("give_back", RUN, actor, "has no controls any more"))
            except JournalError as error:
                log.warning("%s keeps the trials that they type in: %s", actor, error)

    def _carry_out(self, command: Command) -> None:
        self._run.submit(command)
        if command.verb == "take_over":
            self._typists.add(command.actor)
        if command.verb == "stop" and command.target == RUN and self._task is not None:
            why = f": {command.reason}" if command.reason else ""
            self._stop(f"stopped by {command.actor}{why}")

    async def run(self) -> RunEnd:
        self._task = asyncio.current_task()
        with self._listening():
            end = await self._run.run()
            self._server.close(end)
        return end

    def _stop(self, why: str) -> None:
        # Cancelling twice would interrupt the clean-up that the first one began.
        assert self._task is not None
        if not self._task.cancelling():
            self._task.cancel(why)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """The socket, while the run is live. A run that can't have one goes on without."""
        path = self._directory.control_socket
        if writer(self._directory) is not None:
            # Another process has the run, and its socket: this one is about to be refused.
            yield
            return
        try:
            listener = bind(path)
            ours = path.stat()
        except OSError as error:
            log.warning("%s: can't be opened (%s); the run takes no commands there", path, error)
            yield
            return
        self._server.start(listener)
        try:
            with registered(self._directory):
                yield
        finally:
            with contextlib.suppress(OSError):
                # A process that goes on with the run may have put its own there already.
                if path.stat().st_ino == ours.st_ino:
                    path.unlink()
