"""Serves model APIs on sockets: each secret's calls go to the handler of one trial."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from socket import socket

from aiohttp import web

from tbtui.endpoint.anthropic import AnthropicMessages
from tbtui.endpoint.calls import CallHandler, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.openai_chat import OpenAIChat
from tbtui.endpoint.openai_responses import OpenAIResponses
from tbtui.endpoint.wire import Codec, Stream, to_json

QUIET_SEC = 10.0
"""How long a client hears nothing: well below every read time-out."""
AT_ONCE = 16
"""Calls of one secret that are worked on at a time; further ones wait, unread."""
WAITING = 256
"""How many may wait."""
_LARGEST_BODY = 32 << 20
_SHUTDOWN_SEC = 0.1
_KEPT_BACKLOG = 1024
_ACCEPTS_AT_ONCE = 4
"""New connections for each iteration of the loop: what is under way goes on between them."""
_CHAT, _RESPONSES, _MESSAGES = OpenAIChat(), OpenAIResponses(), AnthropicMessages()
_JSON = {"Content-Type": "application/json"}
_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_IGNORED = "x-ignored-parameters"


@dataclass(eq=False)
class _Admitted:
    handler: CallHandler
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    requests: int = 0


class ModelEndpoint:
    """One per process; serves nothing until it listens.

    Paths are those of the APIs, with `/v1` before them and without. The secret comes as a bearer
    token or as `x-api-key`; whatever has none that is admitted gets an authentication error.
    """

    def __init__(self, quiet_sec: float = QUIET_SEC) -> None:
        self._quiet_sec = quiet_sec
        self._admitted: dict[str, _Admitted] = {}
        self._listening: set[Listening] = set()
        self._answering: set[asyncio.Task[ModelAnswer]] = set()

    def admit(self, secret: str, handler: CallHandler) -> None:
        """Let `handler` answer the requests that come with this secret."""
        self._admitted[secret] = _Admitted(handler)

    def revoke(self, secret: str) -> None:
        """Refuse further requests with this secret; those under way end as their handler ends
        them."""
        self._admitted.pop(secret, None)

    async def listen(self, sock: socket, only: str | None = None) -> Listening:
        """Serve a socket that is bound already (TCP or Unix), and own it from now on.

        Args:
            only: the one secret that this socket takes.
        """
        app = web.Application(client_max_size=_LARGEST_BODY)
        requests = _Requests(self._admitted, only, self._answering, self._quiet_sec)
        for prefix in ("/v1", ""):
            app.router.add_post(f"{prefix}/chat/completions", requests.chat)
            app.router.add_post(f"{prefix}/responses", requests.responses)
            app.router.add_post(f"{prefix}/messages", requests.messages)
            app.router.add_post(f"{prefix}/messages/count_tokens", requests.count_tokens)
            app.router.add_get(f"{prefix}/models", requests.models)
            app.router.add_get(f"{prefix}/models/{{name}}", requests.model)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SEC
        )
        await runner.setup()
        await web.SockSite(runner, sock, backlog=_ACCEPTS_AT_ONCE).start()
        sock.listen(_KEPT_BACKLOG)  # how many wait in the kernel is another matter
        listening = Listening(runner, self._listening)
        self._listening.add(listening)
        return listening

    async def close(self) -> None:
        """Stop serving all sockets, and cancel the calls under way."""
        for task in self._answering:
            task.cancel()
        for listening in list(self._listening):
            await listening.close()


class Listening:
    """A socket that is served."""

    def __init__(self, runner: web.AppRunner, among: set[Listening]) -> None:
        self._runner = runner
        self._among = among

    async def close(self) -> None:
        """Accept no more connections on it, and end those that it has."""
        self._among.discard(self)
        await self._runner.cleanup()


class _Requests:
    """Handles the HTTP requests of one socket."""

    def __init__(
        self,
        admitted: dict[str, _Admitted],
        only: str | None,
        answering: set[asyncio.Task[ModelAnswer]],
        quiet_sec: float,
    ) -> None:
        self._admitted = admitted
        self._only = only
        self._answering = answering
        self._quiet_sec = quiet_sec

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, _CHAT)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, _RESPONSES)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, _MESSAGES)

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        handler = None
        try:
            trial = self._trial(request)
            handler = trial.handler
            async with _turn(trial):
                call = _MESSAGES.decode_count(await _body(request))
                count = await handler.count_tokens(call)
        except CallRefused as refusal:
            return _refused(_MESSAGES, refusal, handler)
        return web.Response(body=to_json({"input_tokens": count}), headers=_JSON)

    async def models(self, request: web.Request) -> web.StreamResponse:
        return self._named(request, "")

    async def model(self, request: web.Request) -> web.StreamResponse:
        return self._named(request, request.match_info["name"])

    def _named(self, request: web.Request, name: str) -> web.StreamResponse:
        # Anthropic's clients send their version with every request.
        codec: Codec = _MESSAGES if "anthropic-version" in request.headers else _CHAT
        try:
            model = self._trial(request).handler.model
        except CallRefused as refusal:
            return _refused(codec, refusal, None)
        now = int(time.time())
        listed = {
            **{"id": name or model, "object": "model", "created": now, "owned_by": "tbtui"},
            **{"type": "model", "display_name": model, "created_at": "1970-01-01T00:00:00Z"},
        }
        whole = {"object": "list", "data": [listed], "has_more": False}
        ends = {"first_id": model, "last_id": model}
        return web.Response(body=to_json(listed if name else {**whole, **ends}), headers=_JSON)

    async def _call(self, request: web.Request, codec: Codec) -> web.StreamResponse:
        handler = None
        try:
            trial = self._trial(request)
            handler = trial.handler
            async with _turn(trial):
                call = codec.decode(await _body(request))
                return await self._answer(request, codec, call, handler)
        except CallRefused as refusal:
            return _refused(codec, refusal, handler)

    def _trial(self, request: web.Request) -> _Admitted:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        secret = request.headers.get("x-api-key") or (token if scheme.lower() == "bearer" else "")
        admitted = self._admitted.get(secret) if self._only in (None, secret) else None
        if admitted is None:
            raise CallRefused("unauthorized", "the API key is none of a trial that is running here")
        return admitted

    async def _answer(
        self, request: web.Request, codec: Codec, call: ModelCall, handler: CallHandler
    ) -> web.StreamResponse:
        """Wait for the answer, and send it.

        Raises:
            CallRefused: nothing has been sent yet.
        """
        answering = asyncio.get_running_loop().create_task(handler.answer(call))
        self._answering.add(answering)
        answering.add_done_callback(self._answered)
        stream = codec.stream(call) if call.stream else None
        headers = {**(_SSE if stream else _JSON)}
        if call.ignored:
            headers[_IGNORED] = ", ".join(call.ignored)
        try:
            response = await self._kept_alive(request, answering, stream, headers)
            try:
                answer = answering.result()
            except CallRefused as refusal:
                if not response.prepared:
                    raise
                handler.refused(codec.api, refusal)
                await _break_off(request, response, stream, refusal)
                return response
            data = list(stream.answer(answer)) if stream else [codec.encode(call, answer)]
            if not response.prepared:
                if stream is None:
                    response.content_length = len(data[0])
                await response.prepare(request)
            for each in data:
                await response.write(each)
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            handler.abandoned(call)
            raise
        return response

    async def _kept_alive(
        self,
        request: web.Request,
        answering: asyncio.Task[ModelAnswer],
        stream: Stream | None,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        """Wait for the answer, and let the client hear something meanwhile."""
        response = web.StreamResponse(headers=headers)
        while not (await asyncio.wait((answering,), timeout=self._quiet_sec))[0]:
            if not response.prepared:
                await response.prepare(request)
            # White space before a JSON text is none of it.
            await response.write(stream.keep_alive() if stream else b"\n")
        return response

    def _answered(self, task: asyncio.Task[ModelAnswer]) -> None:
        self._answering.discard(task)
        if not task.cancelled():
            task.exception()  # of an abandoned call, nobody else asks for it


@contextlib.asynccontextmanager
async def _turn(trial: _Admitted) -> AsyncIterator[None]:
    """Wait for one of the trial's slots. Raises `CallRefused` when too many wait already."""
    if trial.requests >= AT_ONCE + WAITING:
        raise CallRefused("overloaded", f"{trial.requests} calls of this trial wait already")
    trial.requests += 1
    try:
        async with trial.slots:
            yield
    finally:
        trial.requests -= 1


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise CallRefused("invalid_request", f"more than {_LARGEST_BODY >> 20} MiB") from error


def _refused(codec: Codec, refusal: CallRefused, handler: CallHandler | None) -> web.Response:
    if handler is not None:
        handler.refused(codec.api, refusal)
    status, body = codec.error(refusal)
    # Clients ask again by themselves, for what won't change too.
    again = {} if refusal.kind in ("overloaded", "provider") else {"x-should-retry": "false"}
    return web.Response(status=status, body=body, headers={**_JSON, **again})


async def _break_off(
    request: web.Request,
    response: web.StreamResponse,
    stream: Stream | None,
    refusal: CallRefused,
) -> None:
    """End a response that has begun, with an error where its form has any."""
    if stream is not None:
        await response.write(stream.error(refusal))
        await response.write_eof()
    elif request.transport is not None:
        # There is no going back to another status: the client sees a broken connection, asks
        # again, and gets the error at once.
        request.transport.abort()
