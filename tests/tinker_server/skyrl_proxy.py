"""Between a Tinker SDK from 0.26 on and SkyRL 0.4.0's server, which speaks as 0.25 did.

`python -m tests.tinker_server.skyrl_proxy UPSTREAM PORT`. Everything passes through as it is, but
for five things that newer clients need:

- an answer to `asample` names its sequences (`sample_sequence_ids`);
- a sample's seed may have 64 bits; JAX takes 32, and one seed that is larger fails every request
  that is sampled together with it;
- one `load_weights` makes a model from a checkpoint, under an id that the client derives from its
  session; SkyRL has a model made first, and chooses the id;
- a session can be finished;
- saving under a name twice is the same request again, after an answer that was lost; SkyRL calls
  it a conflict.

What it knows is in memory: a proxy that is started again knows no models that were resumed.
"""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

import httpx
import uvicorn
import zstandard
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2

_API = "/api/v1/"
_PROTO = "application/x-protobuf"
_SEEDS = 2**31
_METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH"]
_SAVES = frozenset({_API + "save_weights", _API + "save_weights_for_sampler"})

# Of one connection, or no longer true of a body that was read and written anew.
_OF_THE_CONNECTION = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
        "content-encoding",
    }
)


class CompatibilityProxy:
    """Handles one request at a time of any number at once."""

    def __init__(self, upstream: httpx.AsyncClient) -> None:
        self._upstream = upstream
        self._models: dict[str, str] = {}
        """What the client calls a model that was resumed, and what the server does."""
        self._loading: dict[str, dict[str, Any]] = {}
        """The answer to each load, for when it is asked for again."""
        self._saving: dict[str, dict[str, Any]] = {}

    async def handle(self, request: Request) -> Response:
        """The server's answer; 502 where there is none, as any proxy says it."""
        try:
            return await self._handle(request)
        except httpx.TransportError as error:
            words = str(error) or type(error).__name__
            return JSONResponse({"detail": f"SkyRL's server isn't reached: {words}"}, 502)

    async def _handle(self, request: Request) -> Response:
        path = request.url.path
        body = await request.body()
        if path.startswith(_API + "sessions/") and path.endswith("/finish"):
            return Response(status_code=204)
        if path == _API + "forward_backward":
            return await self._forward(request, self._renamed_proto(request, body))
        if not body or not request.headers.get("content-type", "").startswith("application/json"):
            return await self._forward(request, body)
        message = json.loads(body)
        if path == _API + "load_weights" and "model_id" not in message:
            return await self._load(message)
        if (known := self._models.get(message.get("model_id", ""))) is not None:
            message["model_id"] = known
            body = json.dumps(message).encode()
        if path == _API + "asample":
            return await self._sample(request, message)
        if path in _SAVES:
            return await self._save(request, body)
        return await self._forward(request, body)

    async def _forward(self, request: Request, body: bytes) -> Response:
        return _passed_on(await self._send(request, body))

    async def _send(self, request: Request, body: bytes) -> httpx.Response:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _OF_THE_CONNECTION
        }
        return await self._upstream.request(
            request.method,
            request.url.path,
            params=request.query_params,
            headers=headers,
            content=body,
        )

    def _renamed_proto(self, request: Request, body: bytes) -> bytes:
        if request.headers.get("content-encoding", "").lower() == "zstd":
            body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        message = tinker_public_pb2.ForwardBackwardRequest()
        message.ParseFromString(body)
        if (known := self._models.get(message.model_id)) is None:
            return body
        message.model_id = known
        return bytes(message.SerializeToString())

    async def _sample(self, request: Request, message: dict[str, Any]) -> Response:
        parameters = message["sampling_params"]
        if (seed := parameters.get("seed")) is not None:
            parameters["seed"] = seed % _SEEDS
        answer = await self._send(request, json.dumps(message).encode())
        if answer.status_code != httpx.codes.OK:
            return _passed_on(answer)
        promise = answer.json()
        promise["sample_sequence_ids"] = [
            f"{promise['request_id']}-{index}" for index in range(message.get("num_samples", 1))
        ]
        return JSONResponse(promise)

    async def _save(self, request: Request, body: bytes) -> Response:
        key = f"{request.url.path} {body.decode()}"
        if (promise := self._saving.get(key)) is None:
            answer = await self._send(request, body)
            if answer.status_code != httpx.codes.OK:
                return _passed_on(answer)
            promise = self._saving[key] = answer.json()
        return JSONResponse(promise)

    async def _load(self, message: dict[str, Any]) -> Response:
        session, number = message["session_id"], message["model_seq_id"]
        alias = f"{session}:train:{number}"
        if (promise := self._loading.get(alias)) is not None:
            return JSONResponse(promise)
        run = message["path"].removeprefix("tinker://").partition("/")[0]
        found = await self._upstream.get(f"{_API}training_runs/{run}")
        if found.status_code != httpx.codes.OK:
            return _passed_on(found)
        made = await self._upstream.post(
            _API + "create_model",
            json={
                "session_id": session,
                "base_model": message.get("base_model") or found.json()["base_model"],
                "lora_config": {"rank": found.json()["lora_rank"]},
            },
        )
        if made.status_code != httpx.codes.OK:
            return _passed_on(made)
        # The server carries out a model's requests in order, so the load can be handed in at once.
        model = made.json()["model_id"]
        answer = await self._upstream.post(
            _API + "load_weights",
            json={"model_id": model, "path": message["path"], "optimizer": message["optimizer"]},
        )
        if answer.status_code != httpx.codes.OK:
            return _passed_on(answer)
        self._models[alias] = model
        self._loading[alias] = answer.json()
        return JSONResponse(answer.json())


def _passed_on(answer: httpx.Response) -> Response:
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name.lower() not in _OF_THE_CONNECTION
    }
    return Response(answer.content, answer.status_code, headers)


def connection(upstream: str) -> httpx.AsyncClient:
    """To the server at the address `upstream`."""
    # No timeout: the server holds a question for a result for up to five minutes.
    return httpx.AsyncClient(base_url=upstream, timeout=None)


def application(client: httpx.AsyncClient) -> Starlette:
    """The proxy in front of the server that `client` is connected to."""
    proxy = CompatibilityProxy(client)

    @asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    route = Route("/{path:path}", proxy.handle, methods=_METHODS)
    return Starlette(routes=[route], lifespan=closing)


if __name__ == "__main__":
    uvicorn.run(
        application(connection(sys.argv[1])),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        log_level="warning",
        # The SDK keeps its connections longer than the server's five seconds.
        timeout_keep_alive=75,
    )
