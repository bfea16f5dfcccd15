"""A model endpoint on a loopback socket, with a handler whose answers are a list."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.server import ModelEndpoint

SECRET = "sk-trial-1"

Answer = ModelAnswer | CallRefused | Callable[[ModelCall], Awaitable[ModelAnswer]]


@dataclass
class Scripted:
    """Implements `tbtui.endpoint.calls.CallHandler`; the last answer repeats."""

    answers: list[Answer] = field(default_factory=lambda: [ModelAnswer("hi")])
    model: str = "policy"
    most_bytes: int = 1 << 20
    calls: list[ModelCall] = field(default_factory=list)
    gone: list[ModelCall] = field(default_factory=list)
    refusals: list[tuple[Api, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """The reason of each refusal."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, call: ModelCall) -> ModelAnswer:
        self.calls.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.changed.set()
        if isinstance(answer, CallRefused):
            raise answer
        return answer if isinstance(answer, ModelAnswer) else await answer(call)

    async def count_tokens(self, call: ModelCall) -> int:
        return sum(len(message.content) for message in call.messages)

    def abandoned(self, call: ModelCall) -> None:
        self.gone.append(call)
        self.changed.set()

    def refused(self, api: Api, refusal: CallRefused) -> None:
        self.refusals.append((api, refusal.kind))
        self.said.append(refusal.message)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


@dataclass
class Served:
    """An endpoint that listens."""

    endpoint: ModelEndpoint
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def served(
    handler: Scripted, only: str | None = None, quiet_sec: float = 10.0, silent_sec: float = 60.0
) -> AsyncIterator[Served]:
    """Serve the handler on a loopback port."""
    endpoint = ModelEndpoint(quiet_sec, silent_sec)
    endpoint.admit(SECRET, handler)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    await endpoint.listen(sock, only)
    try:
        yield Served(endpoint, sock.getsockname()[1])
    finally:
        await endpoint.close()
