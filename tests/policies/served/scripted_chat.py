"""A Chat Completions server whose answers a script gives: real HTTP on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.rollout.scripted import DONE, act
from tests.tasks import make_task


def turn(body: dict[str, Any]) -> str:
    """What solves a task of `write_task`, turn by turn."""
    said = sum(message["role"] == "assistant" for message in body["messages"])
    return DONE if said else act("echo ok > /app/done\n")


def whole(content: str | None, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """A completion in one piece."""
    said = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "finish_reason": finish, "message": said}
    return {"id": "x", "object": "chat.completion", "created": 1, "choices": [choice]}


def chunk(delta: dict[str, Any], finish: str | None = None, **choice: Any) -> dict[str, Any]:
    """A piece of a completion that is streamed."""
    one = {"index": 0, "delta": delta, "finish_reason": finish, **choice}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "choices": [one]}


def solved(body: dict[str, Any]) -> web.Response:
    return web.json_response(whole(turn(body)))


def refusal(status: int, message: str, **headers: str) -> web.Response:
    error = {"error": {"message": message, "type": "invalid_request_error", "code": status}}
    return web.json_response(error, status=status, headers=headers)


@dataclass
class Streamed:
    """A stream of events, each after `every_sec`; without `ends`, it breaks off."""

    events: Iterable[dict[str, Any]]
    every_sec: float = 0.0
    ends: bool = True

    async def send(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in self.events:
            await asyncio.sleep(self.every_sec)
            await response.write(f": alive\n\ndata: {json.dumps(event)}\n\n".encode())
        if self.ends:
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


@dataclass
class ChatServer:
    """Answers as `respond` says, by the word after `KIND:` in the conversation; else well."""

    respond: dict[str, Callable[[dict[str, Any]], web.Response | Streamed]] = field(
        default_factory=dict
    )
    first: list[web.Response] = field(default_factory=list)
    """Answers to the first requests of all."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        if self.first:
            return self.first.pop(0)
        named = re.search(r"KIND:(\w+)", json.dumps(body["messages"]))
        answer = self.respond.get(named[1] if named else "", solved)(body)
        return await answer.send(request) if isinstance(answer, Streamed) else answer

    async def models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": "stub", "object": "model"}]})


@contextlib.asynccontextmanager
async def chatting(**respond: Any) -> AsyncIterator[ChatServer]:
    server = ChatServer(respond)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def write_task(tasks: Path, kind: str) -> None:
    """A task that wants a file, of which the server knows the kind by the instruction."""
    test = '[ "$(cat /app/done)" = ok ] && echo 1 > $R || echo 0 > $R'
    make_task(tasks / kind, f"KIND:{kind} Write ok to /app/done.", test)
