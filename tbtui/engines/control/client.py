"""The other end of a run's control socket: for scripts, and for an app that joins the run.

`ControlClient` is a connection; `AttachedRun` is another process's run for the app.
"""

from __future__ import annotations

import asyncio
import itertools

from tbtui.engines.awaiting import LoopThread
from tbtui.engines.control.address import connect
from tbtui.engines.control.protocol import (
    MAX_LINE,
    VERSION,
    Accepted,
    Answer,
    Ask,
    ControlsChanged,
    Ended,
    Hello,
    ProtocolError,
    Refused,
    Release,
    Take,
    Welcome,
    encode,
    read_answer,
)
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.rundir import RunDirectory, is_here, writer
from tbtui.view.ending import not_live, to_resume

_PATIENCE_SEC = 10.0


class ControlError(Exception):
    """The run can't be reached, or refuses; the message is one line for a person."""


class ControlClient:
    """A connection with a live run. Used on one event loop."""

    def __init__(
        self, run: RunDirectory, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._run = run
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)

    @classmethod
    async def open(
        cls, run: RunDirectory, name: str = "", *, viewer: bool = False
    ) -> tuple[ControlClient, Welcome]:
        """Connect and say who one is (empty: the user).

        Raises:
            ControlError: the run is not live, or doesn't let one in.
        """
        try:
            connection = await asyncio.to_thread(connect, run.control_socket)
        except OSError as error:
            raise ControlError(_why_not(run, error)) from error
        reader, stream = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
        client = cls(run, reader, stream)
        client._send(Hello(VERSION, name, viewer))
        match await client._answer():
            case Welcome() as welcome:
                return client, welcome
            case Refused(reason=reason):
                raise ControlError(f"{run.name}: {reason}")
            case other:
                raise ControlError(f"{run.name}: answers a greeting with {other}")

    async def ask(self, command: Command) -> str:
        """Send a command, whose actor is that of the greeting; returns the command's id.

        Raises:
            ControlError: the run refuses it, or is gone.
        """
        number = self.send(command)
        while True:
            match await self._answer():
                case Accepted(id=id, command=journalled) if id == number:
                    return journalled
                case Refused(id=id, reason=why) if id in (number, ""):
                    raise ControlError(f"{self._run.name}: {why}")
                case _:
                    pass  # what all clients get

    def send(self, command: Command) -> str:
        """Hand a command over without waiting; the id of the request."""
        number = str(next(self._numbers))
        self._send(
            Ask(
                number,
                command.verb,
                command.target,
                command.reason,
                dict(command.arguments),
                command.id,
            )
        )
        return number

    def send_take(
        self, *, if_free: bool = False, exclusive: bool = False, reason: str = ""
    ) -> None:
        """Ask for the controls, without waiting."""
        self._send(Take(str(next(self._numbers)), reason, exclusive, if_free))

    def send_release(self) -> None:
        self._send(Release(str(next(self._numbers))))

    async def receive(self) -> Answer | None:
        """The next message of the run; None: it has closed the connection, or is gone.

        Raises:
            ControlError: it says what is none of the protocol's.
        """
        try:
            line = await self._reader.readuntil(b"\n")
            return read_answer(line)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except (asyncio.LimitOverrunError, ProtocolError) as error:
            raise ControlError(f"{self._run.name}: its answer is {error}") from error

    def close(self) -> None:
        self._writer.close()

    def _send(self, message: Hello | Ask | Take | Release) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _answer(self) -> Answer:
        try:
            async with asyncio.timeout(_PATIENCE_SEC):
                answer = await self.receive()
        except TimeoutError as error:
            raise ControlError(
                f"{self._run.name}: no answer within {_PATIENCE_SEC:.0f} s; its engine hangs"
                f" (see {self._run.log})"
            ) from error
        if answer is None:
            raise ControlError(f"{self._run.name}: the run has ended")
        return answer


def _why_not(run: RunDirectory, error: OSError) -> str:
    if (pid := writer(run)) is None:
        return not_live(run)
    if isinstance(error, PermissionError):
        return f"{run.control_socket}: this run is another user's"
    if pid and not is_here(pid):
        return f"{run.name} runs on another machine, or in another container: steer it from there"
    return (
        f"{run.name} (process {pid or 'unknown'}) can't be reached at {run.control_socket}"
        f" ({error.strerror}; see {run.log})"
    )


# A run that an app joins

_DETACHED = RunEnd("interrupted", "detached; the run goes on")
_NOT_YET = "joining the run"
_TRY_AGAIN_SEC = 2.0


class AttachedRun(LoopThread):
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
        super().__init__("attached", asyncio.new_event_loop())
        self.directory = directory
        self._name = name
        self._take = take or exclusive
        self._exclusive = exclusive
        self._read_only = _NOT_YET
        self._reachable = True
        self._client: ControlClient | None = None
        self._leaving = asyncio.Event()

    @property
    def read_only(self) -> str:
        return self._read_only

    @property
    def steerable(self) -> bool:
        return self._reachable

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

    def _take_now(self) -> None:
        if self._client is not None and self._read_only:
            self._client.send_take()

    def _submit(self, command: Command) -> None:
        if self._client is not None:
            self._client.send(command)

    async def _work(self) -> RunEnd:
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
        resume = to_resume(self.directory)
        goes_on = f"; {resume} goes on with it" if resume else ""
        return RunEnd("failed", f"the run's process is gone{goes_on}")

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


def _end(status: str, reason: str) -> RunEnd:
    match status:
        case "finished" | "failed" | "interrupted" | "refused":
            return RunEnd(status, reason)
        case _:
            return RunEnd("failed", f"{status}: {reason}")
