"""A server that speaks what we use of vLLM's HTTP, with the embedded policy behind completions.

It follows vLLM 0.1x to 0.3x: paths, error bodies, and its habit of taking parameters that a
request leaves out from the model's own settings, which here are an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer

from tbtui.policies.base import Sample, SampleRequest, SamplingParams
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.tokenizer import TOKENIZER
from tests.tinker_server.faults import Faults
from tests.tinker_server.samplers import PrefixCache
from tests.tinker_server.server import DroppingProtocol

CONTEXT = 1024
_NEUTRAL = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


@dataclass(slots=True)
class Served:
    """How the server is, from the next request on."""

    model: str = "starter"
    adapter: str = "starter-lora"
    """A LoRA adapter; vLLM lists them without a length."""
    root: str = "org/starter"
    context: int | None = CONTEXT
    """What it says its limit is; requests are held to it."""
    key: str | None = None
    tells_ids: bool = True
    tells_logprobs: bool = True
    tells_cached: bool = False
    tokenizer_offset: int = 0
    """Added to each id that `/tokenize` tells: another tokenizer."""
    running: tuple[int, ...] | None = None
    """Requests that each engine says it computes; None: the truth, of one engine."""
    first_tokens: tuple[int, int, int] = (0, 0, 0)
    """How many came in at most 0.1 s, in at most 0.2 s, and at all."""
    has_metrics: bool = True
    changes: dict[str, Any] = field(default_factory=dict)
    """Put over the fields of a completion's one choice."""
    refuses: tuple[str, ...] = ()
    """Parameters of a chat completion that it takes for an error, as OpenAI's newer models do."""


class VllmServer:
    """Real HTTP on 127.0.0.1, on a thread of its own. Kinds for `faults`: "models", "completions",
    "chat", "tokenize", "metrics"."""

    def __init__(self, log: Path) -> None:
        self.served = Served()
        self.faults = Faults()
        self.asked: list[dict[str, Any]] = []
        """Bodies of requests for completions."""
        self.aborted = threading.Event()
        """A client has gone before it had its completion."""
        self.reached = threading.Event()
        """A completion was asked for."""
        self.url = ""
        self._log = log
        self._cache = PrefixCache()
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER))
        self.in_flight = 0
        """Completions being drawn."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    def hold(self) -> None:
        """Completions wait until `release`."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.set)

    def reset(self) -> None:
        self.served = Served()
        self.faults.clear()
        self.asked.clear()
        self.aborted.clear()
        self.reached.clear()
        self.release()

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        routes = [
            ("GET", "/v1/models", "models", self._models),
            ("POST", "/v1/completions", "completions", self._completions),
            ("POST", "/v1/chat/completions", "chat", self._chat),
            ("POST", "/tokenize", "tokenize", self._tokenize),
            ("GET", "/metrics", "metrics", self._metrics),
        ]
        app = Starlette(
            routes=[
                Route(path, self._endpoint(kind, act), methods=[method])
                for method, path, kind, act in routes
            ]
        )
        sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, http=DroppingProtocol, lifespan="off", log_config=None, access_log=False,
                timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        with self._log.open("ab") as log:
            self._policy = LocalPolicy(log=log)
            await self._policy.start()
            self._ready.set()
            try:
                await self._server.serve(sockets=[sock])
            finally:
                await self._policy.close()

    def _endpoint(
        self, kind: str, act: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            key, given = self.served.key, request.headers.get("authorization")
            if key and kind != "metrics" and given != f"Bearer {key}":
                return JSONResponse({"error": "Unauthorized"}, 401)
            fault = self.faults.take(("answer", "lose"), (kind,))
            if fault is not None and fault.action == "answer":
                return _refusal(fault.status, fault.detail or "injected fault")
            response = await act(request)
            if fault is not None:
                request.scope["extensions"]["tests.drop_connection"]()
            return response

        return endpoint

    async def _models(self, request: Request) -> Response:
        served = self.served
        model = {"id": served.model, "object": "model", "owned_by": "vllm", "parent": None}
        adapter = {**model, "id": served.adapter, "root": "/adapters/1", "parent": served.model}
        cards = [
            {**model, "root": served.root, "max_model_len": served.context},
            {**adapter, "max_model_len": None},
        ]
        return JSONResponse({"object": "list", "data": cards})

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        ids = self._tokenizer.encode(body["prompt"], add_special_tokens=False).ids
        tokens = [id + self.served.tokenizer_offset for id in ids]
        return JSONResponse({"count": len(tokens), "max_model_len": CONTEXT, "tokens": tokens})

    async def _metrics(self, request: Request) -> Response:
        if not self.served.has_metrics:
            return JSONResponse({"detail": "Not Found"}, 404)
        told = self.served.running
        running = (self.in_flight,) if told is None else told
        lines = ["# TYPE vllm:num_requests_running gauge"]
        lines += [
            f'vllm:num_requests_running{{engine="{engine}",model_name="starter"}} {count}.0'
            for engine, count in enumerate(running)
        ]
        lines += [
            'vllm:num_requests_waiting{engine="0",model_name="starter"} 7.0',
            'vllm:kv_cache_usage_perc{engine="0",model_name="starter"} 0.25',
            'vllm:num_preemptions_total{engine="0",model_name="starter"} 3.0',
            "# TYPE vllm:time_to_first_token_seconds histogram",
        ]
        bounds = ("0.1", "0.2", "+Inf")
        for bound, count in zip(bounds, self.served.first_tokens, strict=True):
            lines.append(f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {count}.0')
        lines.append("")
        return PlainTextResponse("\n".join(lines))

    async def _completions(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if body["model"] not in (self.served.model, self.served.adapter):
            return _refusal(404, f"The model `{body['model']}` does not exist.")
        if any(body.get(name) != value for name, value in _NEUTRAL.items()):
            return _refusal(400, "the test server has no such sampling")
        prompt, limit = body["prompt"], min(CONTEXT, self.served.context or CONTEXT)
        if len(prompt) + body["max_tokens"] > limit:
            return _refusal(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested"
                f" {body['max_tokens']} output tokens and your prompt contains {len(prompt)} input"
                " tokens. Please reduce the length of the input prompt.",
            )
        self.in_flight += 1
        self.reached.set()
        drawing = asyncio.ensure_future(self._draw(body))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((drawing, gone), return_when=asyncio.FIRST_COMPLETED)
            if not drawing.done():
                self.aborted.set()
                return Response(status_code=499)
            return JSONResponse(self._completion(body, await drawing))
        finally:
            self.in_flight -= 1
            drawing.cancel()
            gone.cancel()

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if body["model"] != self.served.model:
            return _refusal(404, f"The model `{body['model']}` does not exist.")
        for name in self.served.refuses:
            if name in body:
                return _refusal(400, f"Unsupported parameter: '{name}' is not supported.")
        if sum(len(each["content"] or "") for each in body["messages"]) > 4 * CONTEXT:
            return _refusal(400, f"This model's maximum context length is {CONTEXT} tokens.")
        said = "It is so."
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": said},
            "finish_reason": "stop",
        }
        if self.served.tells_logprobs and body.get("logprobs"):
            tokens = [{"token": letter, "logprob": -0.5} for letter in said]
            choice["logprobs"] = {"content": tokens}
        return JSONResponse(
            {"object": "chat.completion", "choices": [choice | self.served.changes]}
        )

    async def _draw(self, body: dict[str, Any]) -> Sample:
        await self._flowing.wait()
        return await self._policy.sample(
            SampleRequest(tuple(body["prompt"]), body["max_tokens"], _sampling(body), body["seed"])
        )

    def _completion(self, body: dict[str, Any], sample: Sample) -> dict[str, Any]:
        served = self.served
        ids = list(sample.completion_ids)
        stopped = ids[-1] in body["stop_token_ids"]
        choice: dict[str, Any] = {
            "index": 0,
            "text": self._tokenizer.decode(ids),
            "finish_reason": "stop" if stopped else "length",
            "stop_reason": ids[-1] if stopped else None,
        }
        if served.tells_logprobs and body.get("logprobs") is not None:
            choice["logprobs"] = {"token_logprobs": [float(x) for x in sample.logprobs]}
        if served.tells_ids and body.get("return_token_ids"):
            choice |= {"token_ids": ids, "prompt_token_ids": body["prompt"]}
        usage: dict[str, Any] = {
            "prompt_tokens": len(body["prompt"]),
            "completion_tokens": len(ids),
        }
        if served.tells_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": self._cache.hit(body["prompt"])}
        self._cache.add([*body["prompt"], *ids])
        return {"object": "text_completion", "choices": [choice | served.changes], "usage": usage}


def _sampling(body: dict[str, Any]) -> SamplingParams:
    """What is left out is an error: a vLLM server takes it from the model's own settings."""
    shape = (body[name] for name in ("temperature", "top_p", "top_k", "min_p"))
    return SamplingParams(*shape, stop=tuple(body["stop"]))


async def _gone(request: Request) -> None:
    """Until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "Error", "code": status}}, status)


@contextlib.asynccontextmanager
async def serving(log: Path) -> AsyncIterator[VllmServer]:
    server = VllmServer(log)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)
