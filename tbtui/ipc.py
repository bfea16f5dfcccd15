"""A child process of ours and the typed, two-way channel to it.

The child is started as `python -m MODULE FD ARGS...` in a session of its own, so a ctrl-c in the
terminal reaches the parent alone. When the parent dies, however it dies, the child reads the end
of the channel: that is its signal to clean up and leave.

Messages are pickled: both ends are the same program under the same user.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_HEADER = struct.Struct("!Q")


class ChannelClosedError(ConnectionError):
    """The other end is gone."""


class Channel[Out, In]:
    """Sends `Out`, receives `In`, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel[Out, In]:
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        return cls(reader, writer)

    def post(self, message: Out) -> None:
        """Queue a message; never waits. Raises `ChannelClosedError`."""
        if self._writer.is_closing():
            raise ChannelClosedError("the channel is closed")
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._writer.write(_HEADER.pack(len(body)) + body)

    async def send(self, message: Out) -> None:
        """Queue a message and wait until the buffer has room. Raises `ChannelClosedError`."""
        self.post(message)
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise ChannelClosedError(str(error)) from error

    async def __aiter__(self) -> AsyncIterator[In]:
        """The messages received, until the other end closes or dies."""
        try:
            while True:
                (size,) = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
                message: In = pickle.loads(await self._reader.readexactly(size))
                yield message
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def spawn(
    module: str,
    arguments: Sequence[str] = (),
    *,
    log: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `python -m module FD arguments...`; its output goes to `log` (or nowhere).

    Returns the process and our end of the channel's socket.
    """
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            # -P: nothing is imported from the working directory, which may be anybody's.
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log or subprocess.DEVNULL,
            stderr=subprocess.STDOUT if log else subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def exit_words(status: int | None) -> str:
    """How a process with this exit status ended; below 0: by a signal; None: not yet."""
    if status is None:
        return "does not end"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


async def wait_for_exit(process: subprocess.Popen[bytes], patience_sec: float) -> int | None:
    """Wait for the process to end; its exit status, or None if it outlives our patience."""
    deadline = asyncio.get_running_loop().time() + patience_sec
    while process.poll() is None:
        if asyncio.get_running_loop().time() >= deadline:
            return None
        await asyncio.sleep(0.02)
    return process.returncode


def parent_socket(argv: Sequence[str]) -> socket.socket:
    """Open the child's end of the channel, whose descriptor is the first argument."""
    return socket.socket(fileno=int(argv[1]))
