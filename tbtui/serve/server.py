"""The web server of `tbtui serve`: the page, and a viewer for each tab that has it open.

The browser's half (a terminal and its font) and the way a session talks to its process are
textual-serve's. Its own server is not used: it loads a font from elsewhere, checks neither Host
nor Origin, and starts as many processes as it is asked for.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import signal
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web

from tbtui.journal.rundir import RunDirectory
from tbtui.serve.session import ViewerSession

_PAGE = Path(__file__).with_name("page")
"""Our own part of it; textual-serve has the rest."""
SESSIONS = 8
"""At once: each is a process of some 70 MB."""
_COLUMNS, _ROWS = (20, 500), (5, 200)
"""Least and most."""
_LONGEST_MESSAGE = 1 << 16
"""Bytes from a browser, pasted text among them."""
_HEARTBEAT_SEC = 15.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RunServer:
    """Serves one run."""

    def __init__(self, run: RunDirectory, public: str | None = None) -> None:
        """`public` is the host[:port] that browsers ask for, beside the one listened on."""
        self._run = run
        self._public = public
        self._names = {"localhost", socket.gethostname().lower()}
        if public is not None:
            self._names.add(_hostname(public))
        self._open: dict[web.WebSocketResponse, ViewerSession] = {}

    async def serve(self, host: str, port: int, ready: Callable[[str], None]) -> None:
        """Until SIGINT or SIGTERM; then every viewer has ended.

        Args:
            ready: told the address once it answers.

        Raises:
            OSError: nothing can be listened on there.
        """
        self._names.add(host.lower())
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        runner = web.AppRunner(self._application(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            ready(_url(host, runner.addresses[0][1]))
            await stopped.wait()
        finally:
            await self._end_all()
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guarded])
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/ws", self._session),
                web.static("/page", _PAGE),
                web.static("/static", Path(str(files("textual_serve") / "static"))),
            ]
        )
        return application

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answers nobody but the page itself, under a name that is known to be this server's.

        Without it any web page could read the run through the browser of somebody who can reach
        this server: by a name of its own that it lets point here, or by opening the socket.
        """
        if not self._is_ours(request.host):
            raise web.HTTPForbidden(
                text="tbtui serve doesn't answer to this name; --public-url tells it another one\n"
            )
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] not in (request.host, self._public):
            raise web.HTTPForbidden(text="only from the page itself\n")
        response = await handler(request)
        if not response.prepared:
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
            response.headers["Referrer-Policy"] = "no-referrer"
        return response

    def _is_ours(self, host: str) -> bool:
        name = _hostname(host)
        try:
            # Nobody else's name can be made to look like a bare address.
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True

    async def _page(self, request: web.Request) -> web.StreamResponse:
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
        if len(self._open) >= SESSIONS:
            reason = f"{SESSIONS} tabs show this run already; try again when one has been closed."
            await websocket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=reason.encode())
            return websocket
        session = self._open[websocket] = ViewerSession(self._run, websocket)
        try:
            await session.start(
                _within(request.query.get("width"), 80, _COLUMNS),
                _within(request.query.get("height"), 24, _ROWS),
            )
            async for message in websocket:
                if message.type is WSMsgType.TEXT:
                    await _obey(message.data, session, websocket)
        finally:
            # Counted until its process is gone, even where this handler is given up.
            await asyncio.shield(self._end(websocket))
        return websocket

    async def _end(self, websocket: web.WebSocketResponse) -> None:
        await self._open[websocket].stop()
        self._open.pop(websocket, None)

    async def _end_all(self) -> None:
        sessions = list(self._open.values())
        await asyncio.gather(
            *(
                websocket.close(code=WSCloseCode.GOING_AWAY, message=b"tbtui serve has ended.")
                for websocket in self._open
            )
        )
        await asyncio.gather(*(session.stop() for session in sessions))


async def _obey(text: str, session: ViewerSession, websocket: web.WebSocketResponse) -> None:
    """Do what the page says; what makes no sense is not from it, and left alone."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return
    match message:
        case ["stdin", str(keys)]:
            await session.send_bytes(keys.encode(errors="replace"))
        case ["resize", {"width": int(width), "height": int(height)}]:
            await session.set_terminal_size(_clamp(width, _COLUMNS), _clamp(height, _ROWS))
        case ["ping", str(sent)]:
            await websocket.send_json(["pong", sent])
        case ["focus"]:
            await session.focus()
        case ["blur"]:
            await session.blur()
        case _:
            pass


def _within(text: str | None, default: int, bounds: tuple[int, int]) -> int:
    try:
        return _clamp(default if text is None else int(text), bounds)
    except ValueError:
        return default


def _clamp(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


def _hostname(host: str) -> str:
    """Of a Host header, in lower case; empty where it makes no sense."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
