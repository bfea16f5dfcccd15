"""A scripted model behind an OpenAI-compatible endpoint: answers from a list, tokens made up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.policies.served.scripted_chat import refusal, whole


@dataclass(frozen=True)
class Status:
    """An answer that is an HTTP error."""

    code: int
    message: str = "as scripted"


@dataclass(frozen=True)
class Withheld:
    """An answer that a filter has held back."""


Answer = str | Status | Withheld


@dataclass
class ScriptedModel:
    """Each task's instruction names its script, `[NAME]`; the one named "" is for all others. The
    last answer of a script repeats.

    A request waits while `gate` is not set.
    """

    scripts: Mapping[str, Sequence[Answer]]
    url: str = ""
    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Script -> requests that came."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every request."""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = "".join(str(message["content"]) for message in body["messages"])
        name = next(name for name in self.scripts if f"[{name}]" in prompt or not name)
        script = self.scripts[name]
        said = sum(message["role"] == "assistant" for message in body["messages"])
        number, self.asked[name] = self.asked[name], self.asked[name] + 1
        self.arrived.set()
        await self.gate.wait()
        # By the conversation, so that trials of one task may run side by side; a script with
        # errors, which leave no trace in the conversation, goes request by request.
        by_request = any(isinstance(turn, Status) for turn in script)
        turn = script[min(number if by_request else said, len(script) - 1)]
        if isinstance(turn, Status):
            return refusal(turn.code, turn.message)
        held_back = isinstance(turn, Withheld)
        answer = whole("", "content_filter") if held_back else whole(turn)
        read, drawn = max(1, len(prompt) // 4), max(1, len(str(turn)) // 4)
        tokens = {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}
        return web.json_response(answer | {"model": body["model"], "usage": tokens})


@contextmanager
def silent(model: ScriptedModel) -> Iterator[asyncio.Event]:
    """The model does not answer until the test says so; the event is set when it was asked."""
    model.gate.clear()
    model.arrived.clear()
    yield model.arrived
    model.gate.set()


@asynccontextmanager
async def serving(scripts: Mapping[str, Sequence[Answer]]) -> AsyncIterator[ScriptedModel]:
    """The model, listening on a port of this host; `url` ends in /v1."""
    model = ScriptedModel(scripts)
    model.gate.set()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    model.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield model
    finally:
        await runner.cleanup()
