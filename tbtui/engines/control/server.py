"""Serves a run's control socket on the engine's own event loop.

No client can hold the engine up: a line is at most 64 KiB, a client's requests are taken one after
the other and at most two hundred a second, and so are clients; an answer that isn't read within
ten seconds ends the connection, and nothing that is told to all waits for anybody. Of those that
connect and say nothing the oldest are let go, so that they take no more descriptors than clients.
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
from typing import Any

from tbtui.engines.control.controls import Controls, Hand
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

log = logging.getLogger(__name__)

MOST_CLIENTS = 32
_PATIENCE_SEC = 10.0
_PACE_SEC = 0.005
_MOST_UNREAD = 4 * MAX_LINE
_CREDENTIALS = struct.Struct("3i")


class ControlServer:
    """Takes commands from whoever may connect. Used on one event loop."""

    def __init__(
        self,
        run: str,
        controls: Controls,
        submit: Callable[[Command], None],
        lost: Callable[[str], None],
    ) -> None:
        """`submit` hands a command to the run and may raise `JournalError`; `lost` is told whom
        the controls were taken from, and who has left with them."""
        self._lost = lost
        self.run = run
        self.controls = controls
        self.submit = submit
        self._clients: set[_Client] = set()
        self._newcomers: dict[_Client, None] = {}
        """Have not said who they are; the one that has waited longest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, listener: socket.socket) -> None:
        """Serve it from now on; it is closed in the end."""
        self._begin(self._accept(listener))

    def close(self, end: RunEnd) -> None:
        """Tell everybody how the run has ended, and let go of them. Returns at once."""
        for client in self._clients:
            client.tell(Ended(end.status, end.reason))
        for task in self._tasks:
            task.cancel()

    def take(self, hand: Hand, reason: str = "", *, exclusive: bool = False) -> str:
        """Give `hand` the controls, and tell everybody; the number of the command for that.

        Raises:
            JournalError: it can't be written down, and is not done.
        """
        before = "" if self.controls.held_by(hand) else self.controls.holder
        arguments = {"from": before, "exclusive": exclusive}
        command = Command("take", RUN, actor=hand.name, reason=reason, arguments=arguments)
        self.submit(command)
        self.controls.take(hand, exclusive=exclusive)
        self.tell_controls(reason)
        if before:
            self._lost(before)
        return command.id

    def release(self, hand: Hand) -> None:
        if self.controls.release(hand):
            self.tell_controls()
            self._lost(hand.name)

    def tell_controls(self, reason: str = "") -> None:
        for client in self._clients:
            client.tell_controls(reason)

    def joined(self, client: _Client) -> None:
        """Raises `ProtocolError` where there are enough."""
        if len(self._clients) >= MOST_CLIENTS:
            raise ProtocolError(f"{MOST_CLIENTS} others are connected already")
        self._newcomers.pop(client, None)
        self._clients.add(client)

    def left(self, client: _Client) -> None:
        self._clients.discard(client)
        if client.hand is not None:
            self.release(client.hand)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.closing(listener):
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    # Out of descriptors, most likely: who wants in waits.
                    log.warning("control socket: %s", error)
                    await asyncio.sleep(1)
                    continue
                self._begin(self._serve(connection, self._refusal(connection)))
                await asyncio.sleep(_PACE_SEC)

    def _refusal(self, connection: socket.socket) -> str:
        """Why it is not let in; empty: it is."""
        if (uid := _peer(connection)) not in (os.geteuid(), 0):
            log.warning("control socket: user %d turned away", uid)
            return f"this run is of user {os.geteuid()}"
        return ""

    async def _serve(self, connection: socket.socket, refusal: str) -> None:
        user = _user_name(_peer(connection))
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
        client = _Client(self, reader, writer, user)
        if len(self._newcomers) >= MOST_CLIENTS:
            # Whoever has something to say says it at once: silence costs no descriptors.
            oldest = next(iter(self._newcomers))
            del self._newcomers[oldest]
            oldest.drop()
        self._newcomers[client] = None
        try:
            await client.serve(refusal)
        finally:
            self._newcomers.pop(client, None)
            self.left(client)
            writer.close()


class _Client:
    """One connection."""

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
        self.hand: Hand | None = None
        """None until it has said who it is."""

    async def serve(self, refusal: str) -> None:
        """Until it leaves, or has to: at once where there is a `refusal`."""
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
        """Let go of it without a word."""
        self._writer.transport.abort()

    def tell(self, message: Answer) -> None:
        """Never waits: one that doesn't read is cut off."""
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        elif not self._writer.is_closing():
            self._writer.write(encode(message))

    def tell_controls(self, reason: str) -> None:
        controls = self._server.controls
        yours = self.hand is not None and controls.held_by(self.hand)
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
        self.hand = Hand(name, hello.viewer)
        self.tell(
            Welcome(VERSION, server.run, os.getpid(), controls.holder, False, controls.exclusive)
        )

    async def _line(self) -> bytes:
        """Empty when the client has left."""
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
        server, hand = self._server, self.hand
        assert hand is not None
        match request:
            case Ask():
                if refusal := server.controls.refusal(hand):
                    return Refused(request.id, refusal)
                if request.verb == "take":
                    return Refused(request.id, "the controls are taken with a request of their own")
                command = Command(
                    request.verb, request.target, hand.name, request.reason, request.arguments
                )
                if request.command:
                    command = dataclasses.replace(command, id=request.command)
                server.submit(command)
                return Accepted(request.id, command.id)
            case Take():
                return self._take(request, hand)
            case Release():
                server.release(hand)
                return Accepted(request.id)

    def _take(self, request: Take, hand: Hand) -> Answer:
        controls = self._server.controls
        if not hand.stays:
            return Refused(request.id, "only a viewer, which stays, can have the controls")
        if request.if_free and controls.holder and not controls.held_by(hand):
            return Refused(request.id, controls.refusal(hand))
        number = self._server.take(hand, request.reason, exclusive=request.exclusive)
        return Accepted(request.id, number)


def _peer(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.geteuid()  # the socket's mode has to do
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return getpass.getuser() if uid == os.geteuid() else f"user {uid}"
