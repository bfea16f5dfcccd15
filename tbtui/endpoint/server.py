"""Serves model APIs on sockets: each secret's calls go to the handler of one trial."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from socket import socket

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tbtui.endpoint.anthropic import AnthropicMessages
from tbtui.endpoint.calls import CallHandler, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.openai_chat import OpenAIChat
from tbtui.endpoint.openai_responses import OpenAIResponses
from tbtui.endpoint.wire import Codec, Stream, require_few, to_json
from tbtui.terminal import one_line, visible

QUIET_SEC = 10.0
"""How long a client hears nothing: well below every read time-out."""
AT_ONCE = 16
"""Calls of one secret that are worked on at a time; further ones wait, unread."""
WAITING = 48
"""How many may wait."""
CONNECTIONS = 128
"""Connections of one socket; further ones wait in the kernel, and cost this process nothing."""
SILENT_SEC = 60.0
"""How long a connection may be without a request: one whose head doesn't come to an end, or that
nobody uses any more, takes another one's place."""
_SPACING_SEC = 0.005
"""Between two requests of one socket, or two connections, that come faster than that."""
_BYTES_PER_SEC, _REST = 4 << 20, 8
"""What is read of one trial's bodies, and for how many times as long as one has been decoded none
is; they wait, unread."""
_MOST_NESTS, _BYTES_PER_NEST = 32_768, 128
_BODY_SEC = 30.0
"""For a request's body, whose head has come."""
_LARGEST_BODY = 8 << 20
_SMALL_BODY = 64 << 10
"""What is decoded at once, and waits for no thread behind larger ones."""
_NAMED, _NAME_CHARS = 32, 64
"""Ignored parameters that an answer names, and how much of each."""
_SHUTDOWN_SEC = 0.1
_KEPT_BACKLOG = 1024
_FULL_SEC = 0.05
_DECODERS = 2
_CHAT, _RESPONSES, _MESSAGES = OpenAIChat(), OpenAIResponses(), AnthropicMessages()
_JSON = {"Content-Type": "application/json"}
_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_IGNORED = "x-ignored-parameters"

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Admitted:
    handler: CallHandler
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    body: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One body at a time is read and decoded: in memory they are many times as large."""
    next_body: float = 0.0
    """When the next one may be read, on the loop's clock."""
    decoding_sec: float = 0.0
    """What decoding the last one has taken of a processor."""
    requests: int = 0

    def decode(self, decode: Callable[[bytes], ModelCall], body: bytes) -> ModelCall:
        """Raises `CallRefused`."""
        began = time.thread_time()
        try:
            require_few(body, most_nests(self.handler.most_bytes))
            return decode(body)
        finally:
            self.decoding_sec = time.thread_time() - began

    def rest(self, read: int) -> None:
        """Read no further body for as long as this one, of so many bytes, has cost others."""
        seconds = max(read / _BYTES_PER_SEC, _REST * self.decoding_sec)
        self.next_body = asyncio.get_running_loop().time() + seconds
        self.decoding_sec = 0.0


def most_nests(most_bytes: int) -> int:
    """How many objects and arrays a request may have: one for each four tokens of the context."""
    return min(_MOST_NESTS, most_bytes // _BYTES_PER_NEST)


class ModelEndpoint:
    """One per process; serves nothing until it listens.

    Paths are those of the APIs, with `/v1` before them and without. The secret comes as a bearer
    token or as `x-api-key`; whatever has none that is admitted gets an authentication error.
    """

    def __init__(self, quiet_sec: float = QUIET_SEC, silent_sec: float = SILENT_SEC) -> None:
        self._quiet_sec = quiet_sec
        self._silent_sec = silent_sec
        self._decoders = ThreadPoolExecutor(_DECODERS, "decoding")
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
        connections = _Connections(self._silent_sec)
        app = web.Application(middlewares=[connections.serve])
        requests = _Requests(self._admitted, only, self._answering, self._quiet_sec, self._decoders)
        for prefix in ("/v1", ""):
            app.router.add_post(f"{prefix}/chat/completions", requests.chat)
            app.router.add_post(f"{prefix}/responses", requests.responses)
            app.router.add_post(f"{prefix}/messages", requests.messages)
            app.router.add_post(f"{prefix}/messages/count_tokens", requests.count_tokens)
            app.router.add_get(f"{prefix}/models", requests.models)
            app.router.add_get(f"{prefix}/models/{{name}}", requests.model)
        app.router.add_route("*", "/{path:.*}", requests.unknown)
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_SEC,
            logger=_http_log(),
        )
        await runner.setup()
        listening = Listening(runner, sock, connections, self._listening)
        self._listening.add(listening)
        return listening

    async def close(self) -> None:
        """Stop serving all sockets, and cancel the calls under way."""
        for task in self._answering:
            task.cancel()
        for listening in list(self._listening):
            await listening.close()
        self._decoders.shutdown(wait=False, cancel_futures=True)


class Listening:
    """A socket that is served."""

    def __init__(
        self,
        runner: web.AppRunner,
        sock: socket,
        connections: _Connections,
        among: set[Listening],
    ) -> None:
        self._runner = runner
        self._sock = sock
        self._connections = connections
        self._among = among
        sock.setblocking(False)
        sock.listen(_KEPT_BACKLOG)
        self._accepting = asyncio.create_task(self._accept(), name="model endpoint")

    async def close(self) -> None:
        """Accept no more connections on it, and end those that it has."""
        self._among.discard(self)
        self._accepting.cancel()
        await asyncio.wait((self._accepting,))
        self._sock.close()
        self._connections.close()
        await self._runner.cleanup()

    async def _accept(self) -> None:
        """Take connections, as many as there may be, spaced out."""
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None
        while True:
            while len(server.connections) >= CONNECTIONS:  # noqa: ASYNC110  nothing tells of them
                await asyncio.sleep(_FULL_SEC)
            try:
                accepted, _ = await loop.sock_accept(self._sock)
                transport, _ = await loop.connect_accepted_socket(server, accepted)
            except OSError as error:  # it has gone already, or the process has too many files open
                _log.warning("no connection taken: %s", error)
                await asyncio.sleep(_FULL_SEC)
                continue
            self._connections.wait(transport)
            await asyncio.sleep(_SPACING_SEC)


class _Connections:
    """Ends connections of one socket that have no request, and spaces those out that have one."""

    def __init__(self, silent_sec: float) -> None:
        self._silent_sec = silent_sec
        self._waiting: dict[asyncio.BaseTransport, float] = {}
        """Those without a request, and since when, in that order."""
        self._turns = asyncio.Lock()
        self._next_turn = 0.0
        """When the next request may begin, on the loop's clock."""
        self._ending: asyncio.TimerHandle | None = None

    @web.middleware
    async def serve(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        transport = request.transport
        if transport is not None:
            self._waiting.pop(transport, None)
        try:
            async with self._turns:
                loop = asyncio.get_running_loop()
                await asyncio.sleep(self._next_turn - loop.time())
                self._next_turn = loop.time() + _SPACING_SEC
            return await handler(request)
        finally:
            if transport is not None:
                self.wait(transport)

    def wait(self, transport: asyncio.BaseTransport) -> None:
        """A connection waits for a request from now on."""
        if not transport.is_closing():
            self._waiting[transport] = asyncio.get_running_loop().time()
        if self._ending is None:
            self._end_silent()

    def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()

    def _end_silent(self) -> None:
        loop = asyncio.get_running_loop()
        self._ending = None
        for transport, since in list(self._waiting.items()):
            if transport.is_closing():
                del self._waiting[transport]
            elif since + self._silent_sec <= loop.time():
                del self._waiting[transport]
                assert isinstance(transport, asyncio.Transport)
                transport.abort()
        if self._waiting:
            self._ending = loop.call_later(self._silent_sec / 4, self._end_silent)


class _Requests:
    """Handles the HTTP requests of one socket."""

    def __init__(
        self,
        admitted: dict[str, _Admitted],
        only: str | None,
        answering: set[asyncio.Task[ModelAnswer]],
        quiet_sec: float,
        decoders: ThreadPoolExecutor,
    ) -> None:
        self._admitted = admitted
        self._only = only
        self._answering = answering
        self._quiet_sec = quiet_sec
        self._decoders = decoders

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, _CHAT)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, _RESPONSES)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, _MESSAGES)

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        handler = self._whose()
        try:
            trial = self._trial(request)
            handler = trial.handler
            async with _turn(trial):
                call = await self._decoded(request, trial, _MESSAGES.decode_count)
                count = await handler.count_tokens(call)
        except CallRefused as refusal:
            return _refused(_MESSAGES, refusal, handler)
        return web.Response(body=to_json({"input_tokens": count}), headers=_JSON)

    async def models(self, request: web.Request) -> web.StreamResponse:
        return self._named(request, "")

    async def model(self, request: web.Request) -> web.StreamResponse:
        return self._named(request, request.match_info["name"])

    async def unknown(self, request: web.Request) -> web.StreamResponse:
        """A path that the endpoint doesn't have."""
        try:
            handler: CallHandler | None = self._trial(request).handler
        except CallRefused:
            handler = self._whose()
        said = CallRefused(
            "not_found",
            f"{request.method} {request.path}: the endpoint has POST chat/completions, responses,"
            " messages and messages/count_tokens, and GET models",
        )
        return _refused(_codec_of(request), said, handler)

    def _named(self, request: web.Request, name: str) -> web.StreamResponse:
        try:
            model = self._trial(request).handler.model
        except CallRefused as refusal:
            return _refused(_codec_of(request), refusal, self._whose())
        now = int(time.time())
        listed = {
            **{"id": name or model, "object": "model", "created": now, "owned_by": "tbtui"},
            **{"type": "model", "display_name": model, "created_at": "1970-01-01T00:00:00Z"},
        }
        whole = {"object": "list", "data": [listed], "has_more": False}
        ends = {"first_id": model, "last_id": model}
        return web.Response(body=to_json(listed if name else {**whole, **ends}), headers=_JSON)

    async def _call(self, request: web.Request, codec: Codec) -> web.StreamResponse:
        handler = self._whose()
        try:
            trial = self._trial(request)
            handler = trial.handler
            async with _turn(trial):
                call = await self._decoded(request, trial, codec.decode)
                return await self._answer(request, codec, call, handler)
        except CallRefused as refusal:
            return _refused(codec, refusal, handler)

    async def _decoded(
        self, request: web.Request, trial: _Admitted, decode: Callable[[bytes], ModelCall]
    ) -> ModelCall:
        """Raises `CallRefused`."""
        loop = asyncio.get_running_loop()
        async with trial.body:
            await asyncio.sleep(trial.next_body - loop.time())
            try:
                body = await _body(request, min(_LARGEST_BODY, trial.handler.most_bytes))
                if len(body) <= _SMALL_BODY:
                    return trial.decode(decode, body)
                return await loop.run_in_executor(self._decoders, trial.decode, decode, body)
            finally:
                trial.rest(request.content.total_bytes)

    def _whose(self) -> CallHandler | None:
        """Who answers on this socket, whatever secret comes; None: many do, or none any more."""
        admitted = self._admitted.get(self._only) if self._only is not None else None
        return None if admitted is None else admitted.handler

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
            # Names are whatever a request has: a line break in one would be a header of its own.
            named = ", ".join(name[:_NAME_CHARS] for name in call.ignored[:_NAMED])
            headers[_IGNORED] = visible(one_line(named)).encode("ascii", "replace").decode()
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


def _codec_of(request: web.Request) -> Codec:
    # Anthropic's clients send their version with every request.
    return _MESSAGES if "anthropic-version" in request.headers else _CHAT


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


async def _body(request: web.Request, most: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SEC):
            async for part in request.content.iter_any():
                body += part
                if len(body) > most:
                    raise CallRefused(
                        "context_overflow",
                        f"a request of more than {most} bytes exceeds the maximum context length",
                    )
    except TimeoutError as error:
        why = f"its body has not come within {_BODY_SEC:g} s"
        raise CallRefused("invalid_request", why) from error
    except web.RequestPayloadError as error:
        raise CallRefused("invalid_request", f"its body can't be read: {error}") from error
    return bytes(body)


def _http_log() -> logging.Logger:
    """The log of the HTTP server; clients that speak no HTTP could fill it."""
    log = logging.getLogger(f"{__name__}.http")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    return not record.exc_info or not isinstance(record.exc_info[1], HttpProcessingError)


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
