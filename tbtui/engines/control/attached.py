"""A run of another process, joined through its control socket."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable

from tbtui.engines.control.client import ControlClient, ControlError
from tbtui.engines.control.protocol import ControlsChanged, Ended, Welcome
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.rundir import RunDirectory, writer

_DETACHED = RunEnd("interrupted", "detached; the run goes on")
_NOT_YET = "joining the run"
_TRY_AGAIN_SEC = 2.0


class AttachedRun:
    """A `tbtui.ui.services.RunHost` at the other end of a run's control socket.

    A thread of its own talks to the run; every method may be called from any thread. A live run
    that can't be reached (it is another machine's, hangs, or is still starting) is to be looked at
    meanwhile: it is not `steerable`, and `read_only` says why.
    """

    outlives = True

    def __init__(
        self, directory: RunDirectory, name: str = "", *, take: bool = True, exclusive: bool = False
    ) -> None:
        """
        Args:
            name: of who looks; empty: the user.
            take: the controls, if nobody has them; else only look.
            exclusive: take them from the client that has them, and keep scripts out too.
        """
        self.directory = directory
        self._name = name
        self._take = take or exclusive
        self._exclusive = exclusive
        self._read_only = _NOT_YET
        self._reachable = True
        self._client: ControlClient | None = None
        self._end: concurrent.futures.Future[RunEnd] = concurrent.futures.Future()
        self._loop = asyncio.new_event_loop()
        self._leaving = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="attached", daemon=True)

    @property
    def read_only(self) -> str:
        return self._read_only

    @property
    def steerable(self) -> bool:
        return self._reachable

    def start(self) -> None:
        self._thread.start()

    def submit(self, command: Command) -> None:
        self._call(lambda: self._submit(command))

    def take_controls(self) -> None:
        self._call(self._take_now)

    def interrupt(self) -> None:
        """Detach: the run goes on."""
        self._call(self._leaving.set)

    def hang_up(self) -> bool:
        """Handle the loss of the terminal: False, because the run belongs to another process."""
        return False

    async def ended(self) -> RunEnd:
        # Without the shield, giving up the wait would cancel the future.
        return await asyncio.shield(asyncio.wrap_future(self._end))

    def _take_now(self) -> None:
        if self._client is not None and self._read_only:
            self._client.send_take()

    def _submit(self, command: Command) -> None:
        if self._client is not None:
            self._client.send(command)

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                end = runner.run(self._attached())
        except BaseException as error:
            self._end.set_exception(error)
            raise
        self._end.set_result(end)

    async def _attached(self) -> RunEnd:
        leaving = asyncio.create_task(self._leaving.wait())
        following = asyncio.create_task(self._follow())
        await asyncio.wait((leaving, following), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            leaving.cancel()
            return following.result()
        following.cancel()
        return _DETACHED

    async def _follow(self) -> RunEnd:
        """Follow the run until it ends."""
        while not isinstance(joined := await self._join(), tuple):
            if joined is not None:
                return joined
            await asyncio.sleep(_TRY_AGAIN_SEC)
        client, welcome = joined
        self._client = client
        try:
            if not self._take or welcome.holder:
                self._controls(welcome)
            if self._take:
                client.send_take(if_free=not self._exclusive, exclusive=self._exclusive)
            while (answer := await client.receive()) is not None:
                match answer:
                    case ControlsChanged():
                        self._controls(answer)
                    case Ended(status, reason):
                        return _end(status, reason)
                    case _:
                        pass
        except ControlError as error:
            return RunEnd("failed", str(error))
        finally:
            self._client = None
            client.close()
        return RunEnd(
            "failed",
            f"the run's process is gone; tbtui run --resume {self.directory.path} goes on with it",
        )

    async def _join(self) -> tuple[ControlClient, Welcome] | RunEnd | None:
        """Connect to the run; None: it lives and can't be reached now, as while it starts."""
        try:
            joined = await ControlClient.open(self.directory, self._name, viewer=True)
        except ControlError as error:
            if await asyncio.to_thread(writer, self.directory) is not None:
                self._reachable, self._read_only = False, str(error)
                return None
            if self._reachable:
                return RunEnd("failed", str(error))
            return RunEnd("interrupted", "the run's process has ended")
        self._reachable, self._read_only = True, _NOT_YET
        return joined

    def _controls(self, now: Welcome | ControlsChanged) -> None:
        if now.yours:
            self._read_only = ""
        else:
            self._read_only = f"{now.holder or 'nobody'} has the controls"

    def _call(self, what: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)


def _end(status: str, reason: str) -> RunEnd:
    match status:
        case "finished" | "failed" | "interrupted" | "refused":
            return RunEnd(status, reason)
        case _:
            return RunEnd("failed", f"{status}: {reason}")
