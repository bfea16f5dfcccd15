"""The owner's end of a box's control socket: requests out, answers matched to them."""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import marshal
import os
import socket
from dataclasses import dataclass
from typing import Any

from tbtui.rollout.environments.base import SandboxError, SandboxLostError

_MAX_ANSWER = 16 * 1024
# Under the kernel's default for one message (net.core.wmem_default, 208 KiB).
MAX_REQUEST = 200 * 1024


@dataclass(frozen=True, slots=True)
class BoxAnswer:
    """`status` is 0, an errno, or a command's exit code; `descriptor` a file passed along."""

    status: int
    detail: str
    descriptor: int | None = None


class ControlChannel:
    """One box's control socket on the running event loop.

    What arrives is treated as untrusted: the box's first process is out of its other processes'
    reach, but nothing here depends on that.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[BoxAnswer]] = {}
        self._last_number = 0
        self._send_lock = asyncio.Lock()
        self._lost: str | None = None

    async def receive_setup_line(self) -> str:
        """One message of the start-up dialogue; empty when the process is gone."""
        try:
            return (await self._loop.sock_recv(self._socket, _MAX_ANSWER)).decode(errors="replace")
        except ConnectionError:
            return ""

    async def send_setup(self, text: bytes, descriptors: list[int] | None = None) -> None:
        """One message of the start-up dialogue.

        Raises:
            SandboxLostError: the process is gone.
        """
        await self._send(text, descriptors or [])

    def begin(self) -> None:
        """From now on every message is an answer."""
        self._loop.add_reader(self._socket.fileno(), self._receive)

    async def submit(
        self, operation: str, *arguments: Any, descriptors: list[int] | None = None
    ) -> tuple[int, asyncio.Future[BoxAnswer]]:
        """Sends a request; its number, and the future of its answer.

        Raises:
            SandboxLostError: the box is gone.
            SandboxError: the request is too long for one message.
        """
        if self._lost is not None:
            raise SandboxLostError(self._lost)
        self._last_number += 1
        number = self._last_number
        data = marshal.dumps((operation, number, *arguments))
        if len(data) > MAX_REQUEST:
            raise SandboxError(f"{operation}: request of {len(data)} bytes is too long")
        answer: asyncio.Future[BoxAnswer] = self._loop.create_future()
        self._pending[number] = answer
        try:
            await self._send(data, descriptors or [])
        except BaseException:
            self._pending.pop(number, None)
            raise
        return number, answer

    async def request(
        self, operation: str, *arguments: Any, descriptors: list[int] | None = None
    ) -> BoxAnswer:
        """Sends a request and waits for its answer.

        Raises:
            OSError: the box's process could not do it; as if it had been done here.
            SandboxLostError: the box is gone.
        """
        _, future = await self.submit(operation, *arguments, descriptors=descriptors)
        answer = await future
        if answer.status:
            raise OSError(answer.status, answer.detail or os.strerror(answer.status))
        return answer

    def close(self, reason: str) -> None:
        """Closes the socket, which ends the box; everything pending fails with `reason`."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        self._fail(reason)

    @property
    def lost(self) -> str | None:
        """Why the box is gone, or None."""
        return self._lost

    async def _send(self, data: bytes, descriptors: list[int]) -> None:
        ancillary = []
        if descriptors:
            packed = array.array("i", descriptors)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
        async with self._send_lock:
            while True:
                try:
                    self._socket.sendmsg([data], ancillary)
                    return
                except BlockingIOError:
                    await self._writable()
                except OSError as error:
                    if error.errno == errno.EMSGSIZE:
                        raise SandboxError(f"request of {len(data)} bytes is too long") from error
                    raise SandboxLostError(self._lost or "the sandbox is gone") from error

    async def _writable(self) -> None:
        ready = self._loop.create_future()

        def resume() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_writer(self._socket.fileno(), resume)
        try:
            await ready
        finally:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        while True:
            try:
                data, passed, _, _ = socket.recv_fds(self._socket, _MAX_ANSWER, 1)
            except BlockingIOError:
                return
            except OSError:
                data, passed = b"", []
            if not data:
                self.close("the sandbox died")
                return
            self._resolve(data, passed)

    def _resolve(self, data: bytes, passed: list[int]) -> None:
        number, _, rest = data.decode(errors="replace").partition(" ")
        status, _, detail = rest.partition(" ")
        future = None
        with contextlib.suppress(ValueError):
            future = self._pending.pop(int(number), None)
        if future is None or future.done() or not status.lstrip("-").isdigit():
            for descriptor in passed:
                os.close(descriptor)
            return
        future.set_result(BoxAnswer(int(status), detail, passed[0] if passed else None))

    def _fail(self, reason: str) -> None:
        self._lost = self._lost or reason
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(SandboxLostError(reason))
                future.exception()  # the waiter may have gone already: no warning for that
