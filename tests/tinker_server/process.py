"""The server as a process of its own, started and killed from a test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx

_ROOT = Path(__file__).parents[2]
_EXIT_SECONDS = 15.0


class ServerProcess:
    """One state directory and one port, over any number of starts. The policies' output is in
    `server.log` of the state directory."""

    def __init__(self, state_dir: Path, models: Sequence[str] = ()) -> None:
        self._state_dir = state_dir
        self._models = models
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self) -> None:
        """Returns when it listens."""
        self._state_dir.mkdir(parents=True, exist_ok=True)
        port = self.url.rpartition(":")[2] or "0"
        arguments = ["--port", port, "--state-dir", str(self._state_dir)]
        for name in self._models:
            arguments += ["--model", name]
        with (self._state_dir / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.tinker_server", *arguments,
                cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)},
                stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError((self._state_dir / "server.log").read_text())
        self.url = line.decode().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        """kill -9. `start` brings it back on the same port."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
        except TimeoutError:
            await self.kill()

    async def control(self, act: str, **content: Any) -> None:
        """`POST /_test/<act>`; see `control.py`."""
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{self.url}/_test/{act}", json=content)
            answer.raise_for_status()

    async def record(self) -> dict[str, Any]:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self.url}/_test/record")
            answer.raise_for_status()
            content: dict[str, Any] = answer.json()
            return content


@contextlib.asynccontextmanager
async def server_process(
    state_dir: Path, models: Sequence[str] = ()
) -> AsyncIterator[ServerProcess]:
    server = ServerProcess(state_dir, models)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
