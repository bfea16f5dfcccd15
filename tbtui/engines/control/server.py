"""Serves a run's control socket on the engine's own event loop.

No client can hold the engine up: a line is at most 64 KiB, a client's requests are taken one after
the other and at most two hundred a second, and so are clients; an answer that isn't read within
ten seconds ends the connection, and what is sent to all clients waits for none. Of those that
connect and say nothing the oldest are let go, so that they take no more descriptors than clients.

Who may command, when several people look at a run: one client at a time.

- Anybody who can reach the run may look at it.
- At most one client *has the controls*: the app that runs the run (from the start), or a viewer
  that has joined it. A viewer that joins gets them if nobody has them.
- Of those who stay (the app, viewers) only the one with the controls may command. Another one
  takes them when a person says so; the one who had them sees who took them, and may take them back.
- A script's single command needs no controls, and takes none. It is refused only while the
  controls are held exclusively.
- A client that leaves releases the controls.

All of them are the same user (or root), so this keeps people out of each other's way; it is no
protection from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import getpass
import logging
import os
import pwd
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

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
    Request,
    Take,
    Welcome,
    encode,
    read_hello,
    read_request,
)
from tbtui.journal.commands import RUN, Command, RunEnd, is_person
from tbtui.journal.database import JournalError


@dataclass(frozen=True, eq=False, slots=True)
class Client:
    """The app in the run's process, a viewer, or a script."""

    name: str
    stays: bool
    """An app or a viewer; else it sends single commands."""


class Controls:
    """Which client has the controls."""

    def __init__(self) -> None:
        self._holder: Client | None = None
        self._exclusive = False

    @property
    def holder(self) -> str:
        """Name of the client that has them; empty: none has."""
        return "" if self._holder is None else self._holder.name

    @property
    def exclusive(self) -> bool:
        return self._exclusive

    def held_by(self, client: Client) -> bool:
        return self._holder is client

    def refusal(self, client: Client) -> str:
        """Why it may not command now; empty: it may."""
        if self._holder is client:
            return ""
        if client.stays:
            return f"{self.holder} has the controls" if self._holder else "nobody has the controls"
        return f"{self.holder} has the controls for itself" if self._exclusive else ""

    def take(self, client: Client, *, exclusive: bool = False) -> None:
        self._holder, self._exclusive = client, exclusive

    def release(self, client: Client) -> bool:
        """Take them from a client that leaves; returns whether it had them."""
        if self._holder is not client:
            return False
        self._holder, self._exclusive = None, False
        return True


log = logging.getLogger(__name__)

MOST_CLIENTS = 32
_PATIENCE_SEC = 10.0
_PACE_SEC = 0.005
_MOST_UNREAD = 4 * MAX_LINE
_CREDENTIALS = struct.Struct("3i")


class ControlServer:
    """Takes commands from every client of the socket. Used on one event loop."""

    def __init__(
        self,
        run: str,
        controls: Controls,
        submit: Callable[[Command], None],
        lost: Callable[[str], None],
    ) -> None:
        """`submit` hands a command to the run and may raise `JournalError`; `lost` is called
        with the client that the controls were taken from, or that has left with them."""
        self._lost = lost
        self.run = run
        self.controls = controls
        self.submit = submit
        self._connections: set[_Connection] = set()
        self._newcomers: dict[_Connection, None] = {}
        """Have not said who they are; the one that has waited longest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, listener: socket.socket) -> None:
        """Serve it from now on; it is closed in the end."""
        self._begin(self._accept(listener))

    def close(self, end: RunEnd) -> None:
        """Send every client the end of the run, and disconnect it. Returns at once."""
        for connection in self._connections:
            connection.tell(Ended(end.status, end.reason))
        for task in self._tasks:
            task.cancel()

    def take(self, client: Client, reason: str = "", *, exclusive: bool = False) -> str:
        """Give `client` the controls, and notify every client; returns the command's id.

        Raises:
            JournalError: it can't be written down, and is not done.
        """
        before = "" if self.controls.held_by(client) else self.controls.holder
        arguments = {"from": before, "exclusive": exclusive}
        command = Command("take", RUN, actor=client.name, reason=reason, arguments=arguments)
        self.submit(command)
        self.controls.take(client, exclusive=exclusive)
        self.tell_controls(reason)
        if before:
            self._lost(before)
        return command.id

    def release(self, client: Client) -> None:
        if self.controls.release(client):
            self.tell_controls()
            self._lost(client.name)

    def tell_controls(self, reason: str = "") -> None:
        for connection in self._connections:
            connection.tell_controls(reason)

    def joined(self, connection: _Connection) -> None:
        """Count a client as connected. Raises `ProtocolError` where there are too many."""
        if len(self._connections) >= MOST_CLIENTS:
            raise ProtocolError(f"{MOST_CLIENTS} others are connected already")
        self._newcomers.pop(connection, None)
        self._connections.add(connection)

    def left(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection.client is not None:
            self.release(connection.client)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.closing(listener):
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError as error:
                    # Out of descriptors, most likely: who wants in waits.
                    log.warning("control socket: %s", error)
                    await asyncio.sleep(1)
                    continue
                self._begin(self._serve(accepted, self._refusal(accepted)))
                await asyncio.sleep(_PACE_SEC)

    def _refusal(self, accepted: socket.socket) -> str:
        """Why the client is not let in; empty: it is."""
        if (uid := _peer(accepted)) not in (os.geteuid(), 0):
            log.warning("control socket: user %d turned away", uid)
            return f"this run is of user {os.geteuid()}"
        return ""

    async def _serve(self, accepted: socket.socket, refusal: str) -> None:
        user = _user_name(_peer(accepted))
        reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=MAX_LINE)
        connection = _Connection(self, reader, writer, user)
        if len(self._newcomers) >= MOST_CLIENTS:
            # A client says what it wants at once: silence costs no descriptors.
            oldest = next(iter(self._newcomers))
            del self._newcomers[oldest]
            oldest.drop()
        self._newcomers[connection] = None
        try:
            await connection.serve(refusal)
        finally:
            self._newcomers.pop(connection, None)
            self.left(connection)
            writer.close()


class _Connection:
    """One client's connection."""

    def __init__(
        self,
        server: ControlServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        user: str,
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._user = user
        self.client: Client | None = None
        """None until it has said who it is."""

    async def serve(self, refusal: str) -> None:
        """Serve it until it leaves, or has to: at once where there is a `refusal`."""
        try:
            async with asyncio.timeout(_PATIENCE_SEC):
                line = await self._line()
            if refusal:
                # Not before it has spoken: what is said to one that still writes may get lost.
                raise ProtocolError(refusal)
            hello = read_hello(line)
            self._welcome(hello)
            while line := await self._line():
                await self._answer(read_request(line))
                await asyncio.sleep(_PACE_SEC)
        except ProtocolError as error:
            self.tell(Refused("", str(error)))
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()

    def drop(self) -> None:
        """Close the connection without a message."""
        self._writer.transport.abort()

    def tell(self, message: Answer) -> None:
        """Send a message without waiting: a client that doesn't read is cut off."""
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        elif not self._writer.is_closing():
            self._writer.write(encode(message))

    def tell_controls(self, reason: str) -> None:
        controls = self._server.controls
        yours = self.client is not None and controls.held_by(self.client)
        self.tell(ControlsChanged(controls.holder, yours, controls.exclusive, reason))

    def _welcome(self, hello: Hello) -> None:
        if hello.version != VERSION:
            raise ProtocolError(
                f"this run speaks version {VERSION} of the control protocol, not {hello.version}"
            )
        name = hello.name or self._user
        if not is_person(name):
            raise ProtocolError(f"{name} is no person's name: the run's own decisions are under it")
        server, controls = self._server, self._server.controls
        server.joined(self)
        self.client = Client(name, hello.viewer)
        self.tell(
            Welcome(VERSION, server.run, os.getpid(), controls.holder, False, controls.exclusive)
        )

    async def _line(self) -> bytes:
        """The client's next line; empty when it has left."""
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError as error:
            raise ProtocolError(f"a line is longer than {MAX_LINE} bytes") from error

    async def _answer(self, request: Request) -> None:
        try:
            self.tell(self._carried_out(request))
        except JournalError as error:
            self.tell(Refused(request.id, str(error)))
        async with asyncio.timeout(_PATIENCE_SEC):
            await self._writer.drain()

    def _carried_out(self, request: Request) -> Answer:
        server, client = self._server, self.client
        assert client is not None
        match request:
            case Ask():
                if refusal := server.controls.refusal(client):
                    return Refused(request.id, refusal)
                if request.verb == "take":
                    return Refused(request.id, "the controls are taken with a request of their own")
                command = Command(
                    request.verb, request.target, client.name, request.reason, request.arguments
                )
                if request.command:
                    command = dataclasses.replace(command, id=request.command)
                server.submit(command)
                return Accepted(request.id, command.id)
            case Take():
                return self._take(request, client)
            case Release():
                server.release(client)
                return Accepted(request.id)

    def _take(self, request: Take, client: Client) -> Answer:
        controls = self._server.controls
        if not client.stays:
            return Refused(request.id, "only a viewer, which stays, can have the controls")
        if request.if_free and controls.holder and not controls.held_by(client):
            return Refused(request.id, controls.refusal(client))
        number = self._server.take(client, request.reason, exclusive=request.exclusive)
        return Accepted(request.id, number)


def _peer(accepted: socket.socket) -> int:
    """The user id of the process at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.geteuid()  # the socket's mode has to do
    raw = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return getpass.getuser() if uid == os.geteuid() else f"user {uid}"
