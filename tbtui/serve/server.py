"""The web server of `tbtui serve`: the page, and a viewer for each tab that has it open.

The browser's half (a terminal and its font) is textual-serve's. Its own server is not used: it
loads a font from elsewhere, asks for no token, checks neither Host nor Origin, starts as many
processes as it is asked for, and waits for tabs that read nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import signal
import socket
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from aiohttp import WSCloseCode, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from tbtui.journal.rundir import RunDirectory
from tbtui.serve.access import PublicUrl, ask_for, to_the_page
from tbtui.serve.session import ViewerSession

_PAGE = Path(__file__).with_name("page")
"""Our own part of it; textual-serve has the rest."""
_TERMINAL = Path(str(files("textual_serve") / "static"))
SESSIONS = 8
"""Sessions at once: each is a process of some 70 MB."""
_FAREWELL = "tbtui serve has ended."
_LONGEST_MESSAGE = 1 << 20
"""Bytes from a browser, pasted text among them."""
_LONGEST_PATH = 200
"""Characters; the file system refuses a name of 256 bytes."""
_HEARTBEAT_SEC = 15.0
_SLOWEST_END_SEC = 1.0
"""Seconds for clients in the middle of a file when the server ends."""
_MOST_WAITING = 64
_PATIENCE_SEC = 10.0
"""Seconds for a whole request."""
_CONNECTED_SEC = 1.0
"""Seconds until a connection that was taken surely is."""
_HOST = re.compile(r"([\w.-]+|\[[\da-f:.]+\])(?::\d+)?", re.ASCII | re.IGNORECASE)


class RunServer:
    """Serves one run."""

    def __init__(self, run: RunDirectory, token: str | None, public: PublicUrl | None) -> None:
        """Without a `token` anyone who reaches it may read the run.

        `public` is where browsers find it, beside the address listened on.
        """
        self._run = run
        self._token = token
        self._public = public
        self._names = {"localhost", socket.gethostname().lower()}
        if public is not None:
            self._names.add(_hostname(public.host))
        self._open: dict[ViewerSession, asyncio.Task[None]] = {}
        self._waiting: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """Connections that no whole request has come from yet, the oldest first."""
        self._ending = False

    async def serve(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve until SIGINT or SIGTERM; then every viewer has ended.

        Args:
            ready: called with the port once it answers.

        Raises:
            OSError: nothing can be listened on there.
        """
        self._names.add(host.lower())
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=_quiet_logger(),
            shutdown_timeout=_SLOWEST_END_SEC,
        )
        await runner.setup()
        try:
            listening = await loop.create_server(lambda: self._let_in(runner.server), host, port)
            try:
                ready(listening.sockets[0].getsockname()[1])
                await stopped.wait()
            finally:
                listening.close()
        finally:
            await self._end_all()
            await runner.cleanup()

    def _let_in(self, server: web.Server | None) -> web.RequestHandler:
        """Takes a connection; of those without a whole request the oldest are let go."""
        assert server is not None  # it is there once the runner is set up
        if len(self._waiting) >= _MOST_WAITING:
            self._let_go(next(iter(self._waiting)))
        handler = server()
        loop = asyncio.get_running_loop()
        self._waiting[handler] = loop.call_later(_PATIENCE_SEC, self._let_go, handler)
        return handler

    def _let_go(self, handler: web.RequestHandler) -> None:
        self._waiting.pop(handler).cancel()
        if handler.transport is None:
            # It has left, or is being connected: many come at once.
            asyncio.get_running_loop().call_later(_CONNECTED_SEC, _abort, handler)
        else:
            _abort(handler)

    def _application(self) -> web.Application:
        middlewares: list[Middleware] = [self._guarded]
        if self._token is not None:
            secure_host = None if self._public is None else self._public.secure_host
            middlewares.append(ask_for(self._token, secure_host))
        application = web.Application(middlewares=middlewares)
        application.on_response_prepare.append(_seal)
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/ws", self._session),
                web.static("/page", _PAGE),
                web.static("/static", _TERMINAL),
            ]
        )
        return application

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers the page itself alone, under a name that is known to be this server's.

        Without it any web page could read the run through the browser of a person who can reach
        this server: by a name of its own that it lets point here, or by opening the socket.
        """
        if (timer := self._waiting.pop(request.protocol, None)) is not None:
            timer.cancel()
        if not self._is_ours(request.host):
            raise web.HTTPForbidden(
                text="tbtui serve doesn't serve this host name; --public-url adds one\n"
            )
        if not self._is_from_the_page(request):
            raise web.HTTPForbidden(text="only from the page itself\n")
        if len(request.rel_url.raw_path) > _LONGEST_PATH:
            raise web.HTTPNotFound
        try:
            # Read here: aiohttp would fail over them while it answers, and print a traceback.
            _ = request.if_modified_since, request.if_unmodified_since, request.if_range
        except (ValueError, OverflowError):
            raise web.HTTPBadRequest(text="a header's date is none\n") from None
        return await handler(request)

    def _is_ours(self, host: str) -> bool:
        name = _hostname(host)
        try:
            # Nobody else's name can be made to look like a bare address.
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True

    def _is_from_the_page(self, request: web.Request) -> bool:
        origin, host = request.headers.get("Origin"), request.host
        if origin is None:
            return True
        if self._public is not None and host == self._public.host:
            return origin == self._public.origin
        return origin in (f"http://{host}", f"https://{host}") or (
            self._public is not None and origin == self._public.origin
        )

    async def _page(self, request: web.Request) -> web.StreamResponse:
        if request.query_string:
            return to_the_page()
        socket_origins = f"ws://{request.host} wss://{request.host}"
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
            f" font-src 'self'; img-src 'self' data:; connect-src 'self' {socket_origins};"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return web.Response(
            text=(_PAGE / "index.html").read_text(),
            content_type="text/html",
            headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"},
        )

    async def _session(self, request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_SEC, max_msg_size=_LONGEST_MESSAGE, timeout=1.0
        )
        await websocket.prepare(request)
        session = ViewerSession(self._run, request, websocket)
        if self._ending:
            await session.close(WSCloseCode.GOING_AWAY, _FAREWELL)
        elif len(self._open) >= SESSIONS:
            reason = f"{SESSIONS} tabs show this run already; try again when one has been closed."
            await session.close(WSCloseCode.TRY_AGAIN_LATER, reason)
        else:
            size = request.query.get("width"), request.query.get("height")
            showing = self._open[session] = asyncio.create_task(session.show(*size))
            showing.add_done_callback(lambda _: self._open.pop(session))
            # It goes on where this handler is given up: counted until its process is gone.
            await asyncio.shield(showing)
        return websocket

    async def _end_all(self) -> None:
        self._ending = True
        open_now = dict(self._open)
        await asyncio.gather(
            *(session.close(WSCloseCode.GOING_AWAY, _FAREWELL) for session in open_now)
        )
        await asyncio.gather(*open_now.values(), return_exceptions=True)


def _abort(handler: web.RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()


async def _seal(_: web.Request, response: web.StreamResponse) -> None:
    """Keep an answer, and the address that leads here, from other pages. A connection is for one
    request: another half of one would not be waited for."""
    if not isinstance(response, web.WebSocketResponse):
        response.force_close()
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    response.headers["Referrer-Policy"] = "no-referrer"


def _quiet_logger() -> logging.Logger:
    """Tells what went wrong here, not what strangers send."""
    logger = logging.Logger("tbtui.serve")
    logger.addFilter(_is_our_fault)
    return logger


def _is_our_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _hostname(host: str) -> str:
    """The host of a Host header, in lower case; empty where it makes no sense."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1].strip("[]").lower()
