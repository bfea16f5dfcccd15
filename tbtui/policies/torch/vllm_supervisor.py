"""Runs a vLLM server for as long as its parent lives:
`python -m tbtui.policies.torch.vllm_supervisor FD COMMAND...`.

A server starts processes of its own, which hold the GPU's memory and may outlive it. They are in
this process's group, which is killed when the channel ends: the parent closed it, or died. What the
server writes goes on to our output; its last lines go to the parent when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from dataclasses import dataclass

from tbtui.ipc import Channel, ChannelClosedError, parent_socket

_LINES_KEPT = 20
_STOP_SEC = 5.0
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerEnded:
    """Supervisor to client, once: the server has ended by itself."""

    status: int
    """Below 0: by a signal."""
    last_lines: tuple[str, ...]


async def _main(arguments: list[str]) -> None:
    channel: Channel[ServerEnded, None] = await Channel.over(parent_socket(arguments))
    server = await asyncio.create_subprocess_exec(
        *arguments[2:],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=_LONGEST_LINE,
    )
    ended = asyncio.create_task(_report(server, channel))
    async for _ in channel:
        pass
    with contextlib.suppress(ProcessLookupError):
        server.terminate()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.wait(), _STOP_SEC)
    ended.cancel()
    os.killpg(os.getpgid(0), signal.SIGKILL)


async def _report(server: asyncio.subprocess.Process, channel: Channel[ServerEnded, None]) -> None:
    lines: deque[str] = deque(maxlen=_LINES_KEPT)
    assert server.stdout is not None
    while block := await server.stdout.read(1 << 16):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        # A line may come in two parts: what was unfinished is the last one.
        unfinished = lines.pop() if lines else ""
        lines.extend((unfinished + block.decode(errors="replace")).split("\n"))
    status = await server.wait()
    with contextlib.suppress(ChannelClosedError):
        kept = tuple(line.strip() for line in lines if line.strip())
        await channel.send(ServerEnded(status, kept))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
