"""One browser tab: a viewer process, whose screen goes to the tab and whose keys come from it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import override

from aiohttp import WSCloseCode, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from tbtui.journal.rundir import RunDirectory

_VIEWER = "tbtui.serve.viewer"
_PATIENCE_SEC = 3.0
"""For a viewer to end by itself."""
_KEPT = ("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PYTHONPATH", "TZ")
_KEPT_PREFIXES = ("LC_", "XDG_")
"""Of the environment: where a person's settings lie, how they write the time. No keys, no
tokens."""


class ViewerSession(AppService):
    """Ends its process when the tab is closed, and the tab when its process ends."""

    def __init__(self, run: RunDirectory, websocket: web.WebSocketResponse) -> None:
        super().__init__(
            _VIEWER,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=self._left,
            download_manager=DownloadManager(),
        )
        self._run = run
        self._websocket = websocket

    @override
    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith(_KEPT_PREFIXES)
        }
        return kept | {
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "TERM": "xterm-256color",
            "COLUMNS": str(width),
            "ROWS": str(height),
        }

    @override
    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _VIEWER, str(self._run.path)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            cwd="/",
            # ctrl-c is for the server, which then ends them.
            start_new_session=True,
        )
        self._stdin = process.stdin
        return process

    @override
    async def run(self) -> None:
        await super().run()
        process = self._process
        assert process is not None and process.stdout is not None and process.stderr is not None
        # It ended, or nobody reads any more what it draws: it must not wait for a reader.
        while await process.stdout.read(1 << 16):
            pass
        # What came before is told already.
        sys.stdout.write((await process.stderr.read()).decode(errors="replace"))
        sys.stdout.flush()
        await self._websocket.close(
            code=WSCloseCode.INTERNAL_ERROR, message=b"The viewer broke; tbtui serve says why."
        )

    @override
    async def on_meta(self, data: bytes) -> None:
        """Of what an app can ask for only its own end is done: no links, no downloads."""
        if json.loads(data).get("type") == "exit":
            await self._left()

    async def _left(self) -> None:
        await self._websocket.close(code=WSCloseCode.OK, message=b"You have left.")

    @override
    async def on_packed(self, payload: bytes) -> None:
        """Parts of downloads: there are none."""

    @override
    async def stop(self) -> None:
        if self._process is None or self._task is None:
            return
        try:
            async with asyncio.timeout(_PATIENCE_SEC):
                await self.send_meta({"type": "quit"})
                await asyncio.shield(self._task)
        except TimeoutError:
            self._process.kill()
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._process.wait()
