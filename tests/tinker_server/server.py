"""The server in this process, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.tinker_server.faults import Faults
from tests.tinker_server.record import Record
from tests.tinker_server.routes import make_app
from tests.tinker_server.service import Service
from tests.tinker_server.settings import STARTER, ServedModel, ServerSettings


class DroppingProtocol(H11Protocol):
    """Lets the application drop the connection instead of answering."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app = self.app

        async def with_drop(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})["tests.drop_connection"] = transport.abort
            await app(scope, receive, send)

        self.app = with_drop


class TinkerServer:
    """Real HTTP on 127.0.0.1. `faults` and `record` outlive `kill` and `start`."""

    def __init__(self, settings: ServerSettings, faults: Faults) -> None:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.faults = faults
        self.record = Record(settings.state_dir)
        self._port = 0
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._service: Service | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; after `kill`, on the same port and with the same state directory."""
        sock = socket.create_server(("127.0.0.1", self._port))
        self._port = sock.getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sock, ready), daemon=True)
        self._thread.start()
        ready.wait()

    async def kill(self) -> None:
        """Drop all connections and forget everything but what is on disk, at once."""
        if self._thread is None or self._loop is None or self._server is None:
            return
        self._loop.call_soon_threadsafe(_drop_everything, self._server)
        await asyncio.to_thread(self._thread.join)
        self._thread = self._loop = self._server = self._service = None

    async def expire(self, path: str | None = None) -> None:
        """Let a checkpoint or, without `path`, all sampling weights but the base model's expire."""
        await self._on_loop(lambda service: service.expire(path))

    async def delete_run(self, run_id: str) -> None:
        await self._on_loop(lambda service: service.delete_run(run_id))

    async def training_runs(self) -> list[str]:
        """Newest first."""
        return await self._on_loop(lambda s: [run.run_id for run in s.store.runs()])

    async def _on_loop[T](self, act: Callable[[Service], T]) -> T:
        service, loop = self._service, self._loop
        if service is None or loop is None:
            raise RuntimeError("the server is not running")

        async def call() -> T:
            return act(service)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))

    def _run(self, sock: socket.socket, ready: threading.Event) -> None:
        asyncio.run(self.serve(sock, ready.set))

    async def serve(self, sock: socket.socket, ready: Callable[[], None]) -> None:
        """Serve until a stop is asked for (in a process of its own: by SIGTERM or SIGINT)."""
        service = Service(self.settings, self.faults, self.record)
        config = uvicorn.Config(
            make_app(service), http=DroppingProtocol, lifespan="off", log_config=None,
            access_log=False, timeout_graceful_shutdown=1, timeout_keep_alive=60,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._service, self._loop = service, asyncio.get_running_loop()
        ready()
        try:
            await self._server.serve(sockets=[sock])
        finally:
            await service.close()


def _drop_everything(server: uvicorn.Server) -> None:
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    server.should_exit = server.force_exit = True
    for listening in server.servers:
        listening.close()


@contextlib.asynccontextmanager
async def serving(
    *,
    state_dir: Path,
    models: Mapping[str, ServedModel] | None = None,
    faults: Faults | None = None,
    poll_seconds: float = 10.0,
) -> AsyncIterator[TinkerServer]:
    """A running server. `models`: names under which the embedded model is served, "starter" when
    None."""
    settings = ServerSettings(
        state_dir=state_dir,
        models={STARTER: ServedModel()} if models is None else models,
        poll_seconds=poll_seconds,
    )
    server = TinkerServer(settings, faults or Faults())
    server.start()
    try:
        yield server
    finally:
        await server.kill()
