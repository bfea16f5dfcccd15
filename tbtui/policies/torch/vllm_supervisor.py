"""Runs a vLLM server for as long as its parent lives:
`python -m tbtui.policies.torch.vllm_supervisor FD COMMAND...`.

A server starts processes of its own, which hold the GPU's memory and may outlive it. They are in
this process's group, which is killed when the channel ends: the parent closed it, or died. What the
server writes goes on to our output; its last lines go to the parent when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections import deque

from tbtui.ipc import Channel, ChannelClosedError, parent_socket
from tbtui.policies.torch.vllm_server import ServerEnded

_LINES_KEPT = 40
_STOP_SEC = 5.0
_LAST_LINES_SEC = 0.3
_BETWEEN_LOOKS_SEC = 0.05
_LONGEST_LINE = 1 << 20


async def _main(arguments: list[str]) -> None:
    channel: Channel[ServerEnded, None] = await Channel.over(parent_socket(arguments))
    server = await asyncio.create_subprocess_exec(
        *arguments[2:],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=_LONGEST_LINE,
    )
    lines: deque[str] = deque(maxlen=_LINES_KEPT)
    tasks = (
        asyncio.create_task(_pass_on(server, lines)),
        asyncio.create_task(_report(server, lines, channel)),
    )
    async for _ in channel:
        pass
    with contextlib.suppress(ProcessLookupError):
        server.terminate()
    await _until_over(server, _STOP_SEC)
    for task in tasks:
        task.cancel()
    os.killpg(os.getpgid(0), signal.SIGKILL)


async def _pass_on(server: asyncio.subprocess.Process, lines: deque[str]) -> None:
    """The server's output goes on to ours, and its last lines into `lines`."""
    assert server.stdout is not None
    while block := await server.stdout.read(1 << 16):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        # A line may come in two parts: what was unfinished is the last one.
        unfinished = lines.pop() if lines else ""
        lines.extend((unfinished + block.decode(errors="replace")).split("\n"))


async def _report(
    server: asyncio.subprocess.Process, lines: deque[str], channel: Channel[ServerEnded, None]
) -> None:
    await _until_over(server)
    # What it wrote last is still on its way.
    await asyncio.sleep(_LAST_LINES_SEC)
    assert server.returncode is not None
    kept = tuple(line.strip() for line in lines if line.strip())
    with contextlib.suppress(ChannelClosedError):
        await channel.send(ServerEnded(server.returncode, kept))


async def _until_over(server: asyncio.subprocess.Process, most_sec: float = math.inf) -> None:
    """Wait for the server's end, not for that of its output: processes that it has started hold
    that open, and `Process.wait` of Python before 3.12.5 waits for both."""
    deadline = time.monotonic() + most_sec
    while server.returncode is None and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_BETWEEN_LOOKS_SEC)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
