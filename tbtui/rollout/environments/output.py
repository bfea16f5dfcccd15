"""Reads a command's output, and keeps a bounded part of it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbor.environments.base import OutputCallback, OutputStream

KEPT_HEAD = 4 << 20
KEPT_TAIL = 4 << 20
_READ = 1 << 16
# After its command has ended a pipe is read on for daemons that still write to it, up to here.
_LINGER_BYTES = 64 << 20
_DRAIN_BYTES = 1 << 20


class BoundedOutput:
    """The first 4 MiB and the last 4 MiB of a stream, and how much lay between."""

    def __init__(self, head: int = KEPT_HEAD, tail: int = KEPT_TAIL) -> None:
        self._head_limit, self._tail_limit = head, tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        """Takes the next bytes of the stream."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while self._tail_size > self._tail_limit:
            excess = self._tail_size - self._tail_limit
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            cut = min(len(first), excess)
            self._tail_size -= cut
            self._dropped += cut

    def text(self) -> str:
        """What was kept, bytes that are not UTF-8 replaced, a note where something is missing."""
        head, tail = bytes(self._head), b"".join(self._tail)
        if not self._dropped:
            return (head + tail).decode(errors="replace")
        note = f"\n[... {self._dropped} bytes of output not kept ...]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")


class OutputReader:
    """Reads one pipe on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        on_chunk: Callable[[bytes], None] | None = None,
    ) -> None:
        self.output = BoundedOutput()
        self._loop = loop
        self._descriptor = descriptor
        self._on_chunk = on_chunk
        self._lingering: int | None = None
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, self._read)

    @property
    def closed(self) -> bool:
        """Whether reading has ended."""
        return self._descriptor < 0

    def finish(self) -> None:
        """Read what is in the pipe now, because the command has ended; don't wait for daemons' EOF.

        The pipe stays open for them, or a server started in the background would die of the
        first line it logs; what they write is thrown away.
        """
        taken = 0
        while not self.closed and taken < _DRAIN_BYTES:
            size = self._read()
            if size == 0:
                break
            taken += size
        self._lingering = 0

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if not self.closed:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> int:
        try:
            chunk = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return 0
        if self._lingering is not None:
            self._lingering += len(chunk)
            if self._lingering > _LINGER_BYTES:
                self.close()
            return len(chunk)
        self.output.add(chunk)
        if self._on_chunk is not None:
            self._on_chunk(chunk)
        return len(chunk)


def decoded(callback: OutputCallback) -> Callable[[bytes, OutputStream], Awaitable[None]]:
    """Takes the bytes of both streams as they come, and calls `callback` with their text."""
    decoder = codecs.getincrementaldecoder("utf-8")
    decoders = {"stdout": decoder(errors="replace"), "stderr": decoder(errors="replace")}

    async def pass_on(chunk: bytes, stream: OutputStream) -> None:
        await callback(decoders[stream].decode(chunk), stream)

    return pass_on


@contextlib.asynccontextmanager
async def streamed(
    callback: OutputCallback | None,
) -> AsyncIterator[Callable[[OutputStream, bytes], None] | None]:
    """What takes a command's output as it comes, for `callback`; None without one.

    At the end of the block all of it has been passed on.
    """
    if callback is None:
        yield None
        return
    pass_on = decoded(callback)
    chunks: asyncio.Queue[tuple[bytes, OutputStream] | None] = asyncio.Queue()

    async def send() -> None:
        while (item := await chunks.get()) is not None:
            await pass_on(*item)

    sending = asyncio.create_task(send())
    try:
        yield lambda stream, chunk: chunks.put_nowait((chunk, stream))
    finally:
        chunks.put_nowait(None)
        await sending
