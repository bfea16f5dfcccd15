"""Whose doing a container's end is, by the engine's own account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from tbtui.rollout.environments.docker_cli import Stream, run_cli
from tbtui.rollout.environments.limits import machine_memory_kills

_KINDS = ("die", "kill", "oom")
_KILLED = "137"
_SAID_SEC = 5.0
"""How long after a container's end its engine's client may take to say so."""


class EndWatch:
    """Follows what an engine says of one container.

    Somebody who kills or stops a container does so through its engine, which says `kill` before it
    says `die`. An engine that stops, or is started again, says neither. What is left is the first
    process, which has ended: nothing else in the container can be killed in its place, and nobody
    outside ends it but the kernel of a machine that is out of memory.

    It listens from the start, for engines remember only the last few hundred events of all
    containers together.
    """

    def __init__(self, engine: Sequence[str], container: str) -> None:
        self._engine = engine
        self._container = container
        self._said: set[str] = set()
        self._exit_code = ""
        self._died = asyncio.Event()
        self._rest = b""
        self._memory_kills = machine_memory_kills()

    async def run(self) -> None:
        """Until it is cancelled, or the engine's client ends."""
        asked = [f"--filter=container={self._container}", *(f"--filter=event={k}" for k in _KINDS)]
        argv = [*self._engine, "events", *asked, "--format", "{{json .}}"]
        await run_cli(argv, on_chunk=self._take)

    async def own_end(self) -> str:
        """How a container that has ended was ended from within, after "has"; empty: it was ended
        from outside, or that can't be known."""
        try:
            async with asyncio.timeout(_SAID_SEC):
                await self._died.wait()
        except TimeoutError:
            return ""
        if "kill" in self._said:
            return ""
        if "oom" in self._said:
            return "used up its memory, and its container has ended"
        if self._exit_code == _KILLED and self._memory_kills != machine_memory_kills():
            return ""  # perhaps its first process was among them
        return f"ended its container (exit code {self._exit_code})"

    async def _take(self, chunk: bytes, stream: Stream) -> None:
        if stream == "stderr":
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            # Docker's words and Podman's.
            event: dict[str, Any] = json.loads(line)
            kind = str(event.get("Action") or event.get("Status")).replace("died", "die")
            self._said.add(kind)
            if kind == "die":
                attributes = (event.get("Actor") or event).get("Attributes") or {}
                code = attributes.get("exitCode") or event.get("ContainerExitCode", "unknown")
                self._exit_code = str(code)
                self._died.set()
