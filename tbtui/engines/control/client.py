"""The other end of a run's control socket: for scripts, and for an app that joins the run."""

from __future__ import annotations

import asyncio
import itertools
import os

from tbtui.engines.control.address import connect
from tbtui.engines.control.protocol import (
    MAX_LINE,
    VERSION,
    Accepted,
    Answer,
    Ask,
    Hello,
    ProtocolError,
    Refused,
    Release,
    Take,
    Welcome,
    encode,
    read_answer,
)
from tbtui.journal.commands import Command
from tbtui.journal.rundir import RunDirectory, writer

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


def _is_here(pid: int) -> bool:
    """Whether there is such a process, as far as this one can see."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _why_not(run: RunDirectory, error: OSError) -> str:
    if (pid := writer(run)) is None:
        return f"{run.name} is not live; to go on with it: tbtui run --resume {run.path}"
    if isinstance(error, PermissionError):
        return f"{run.control_socket}: this run is another user's"
    if pid and not _is_here(pid):
        return f"{run.name} runs on another machine, or in another container: steer it from there"
    return (
        f"{run.name} (process {pid or 'unknown'}) can't be reached at {run.control_socket}"
        f" ({error.strerror}; see {run.log})"
    )
