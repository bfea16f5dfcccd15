"""`tbtui serve` as a process, and a browser tab as its page's socket would be one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
import psutil

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.terminal.emulator import Emulator

PATIENCE_SEC = 30.0


@dataclass
class Serving:
    """A server on a port of its own."""

    process: subprocess.Popen[str]
    said: str
    """Its first line."""
    address: str
    """What it says to open: with the token."""

    @classmethod
    def start(cls, run: RunDirectory, *options: str, **environment: str) -> Self:
        process = subprocess.Popen(
            [sys.executable, "-m", "tbtui", "serve", str(run.path), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, f"no address, but exit status {process.wait()}"
        return cls(process, said, found[0])

    @property
    def url(self) -> str:
        return self.address.partition("?")[0]

    @property
    def token(self) -> str:
        return self.address.partition("?token=")[2]

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws") + "ws"

    def viewers(self) -> list[psutil.Process]:
        """The processes of its tabs."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def end(self) -> int:
        """By ctrl-c; its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_SEC)

    def complaints(self) -> list[str]:
        """What it has said on standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().splitlines()


@dataclass
class Tab:
    """What a page does: sends keys, and feeds what comes back to a terminal."""

    socket: aiohttp.ClientWebSocketResponse
    screen: Emulator
    raw: bytearray = field(default_factory=bytearray)

    @classmethod
    async def open(cls, client: aiohttp.ClientSession, serving: Serving) -> Self:
        columns, rows = 120, 40
        async with client.get(serving.address) as page:
            assert page.status == 200 and page.url.path_qs == "/"
        address = f"{serving.socket_url}?width={columns}&height={rows}"
        socket = await client.ws_connect(address, headers={"Origin": serving.url.rstrip("/")})
        return cls(socket, Emulator(columns, rows))

    @property
    def text(self) -> str:
        return "\n".join(self.screen.plain(y) for y in range(self.screen.rows))

    async def press(self, keys: str) -> None:
        await self.socket.send_json(["stdin", keys])

    async def until(self, shown: Callable[[str], bool]) -> str:
        """Read on until the screen is so; its text."""
        async with asyncio.timeout(PATIENCE_SEC):
            while not shown(self.text):
                message = await self.socket.receive()
                assert message.type is aiohttp.WSMsgType.BINARY, (message, self.text)
                self.raw += message.data
                self.screen.feed(message.data.decode(errors="replace"))
        return self.text

    async def closed(self) -> str:
        """Wait until the server closes it; the reason it gives."""
        async with asyncio.timeout(PATIENCE_SEC):
            while (message := await self.socket.receive()).type is not aiohttp.WSMsgType.CLOSE:
                assert message.type is aiohttp.WSMsgType.BINARY, message
        return str(message.extra)


def gone(processes: list[psutil.Process]) -> bool:
    """All have ended, with some patience."""
    return not psutil.wait_procs(processes, PATIENCE_SEC)[1]


def environment_of(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/environ").read_bytes().decode()
