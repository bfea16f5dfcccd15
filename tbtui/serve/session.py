"""One browser tab: a viewer process, whose screen goes to the tab and whose keys come from it.

They speak the protocol of Textual's web driver: packets of a letter, a length and a payload.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio import StreamReader
from asyncio.subprocess import PIPE, Process

from aiohttp import WSCloseCode, WSMsgType, web

from tbtui.journal.rundir import RunDirectory
from tbtui.terminal import visible

_VIEWER = "tbtui.serve.viewer"
_PRELUDE = b"__GANGLION__\n"
_DATA, _META = b"D", b"M"
_COLUMNS, _ROWS = (20, 500), (5, 200)
"""Least and most."""
_PATIENCE_SEC = 3.0
"""Seconds for a viewer to end by itself."""
_FAREWELL_SEC = 2.0
"""Seconds for a tab to be sent why it ends."""
_SLOWEST_SEC = 30.0
"""A tab that takes nothing for so long has gone, whatever its connection says."""
_UNREAD_BYTES = 1 << 20
"""A viewer that leaves so much of what is typed unread gets no more of it."""
_KEPT = ("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PYTHONPATH", "TZ")
_KEPT_PREFIXES = ("LC_", "XDG_")
"""Variables of the environment that a viewer gets: where a person's settings lie, how they write
the time. No keys, no tokens."""


class ViewerSession:
    """Ends its process when the tab is closed, and the tab when its process ends."""

    def __init__(
        self, run: RunDirectory, request: web.Request, websocket: web.WebSocketResponse
    ) -> None:
        """`websocket` is what `request` was answered with."""
        self._run = run
        self._request = request
        self._websocket = websocket
        self._ending = False
        """It is ended from here, not by the viewer."""

    async def show(self, width: str | None, height: str | None) -> None:
        """Serve until viewer or tab has ended; then both have.

        Args:
            width: what the page asks for; nonsense is no reason to refuse.
            height: likewise.
        """
        try:
            process = await self._start(_within(width, 80, _COLUMNS), _within(height, 24, _ROWS))
        except OSError as error:
            _say(f"tbtui: a viewer can't be started ({error.strerror})")
            await self.close(
                WSCloseCode.INTERNAL_ERROR, "A viewer can't be started; tbtui serve says why."
            )
            return
        drawing = asyncio.create_task(self._draw_until_it_ends(process))
        try:
            async for message in self._websocket:
                if message.type is WSMsgType.TEXT:
                    await self._obey(message.data, process)
        except ConnectionResetError:
            pass  # the tab has gone in the middle of an answer
        finally:
            self._ending = True
            _tell_meta(process, "quit")
            await asyncio.wait([drawing], timeout=_PATIENCE_SEC)
            _kill(process)
            await drawing

    async def close(self, code: WSCloseCode, reason: str) -> None:
        """Tell the tab why it ends, unless it doesn't listen any more."""
        self._ending = True
        try:
            async with asyncio.timeout(_FAREWELL_SEC):
                await self._websocket.close(code=code, message=reason.encode())
        except TimeoutError:
            self._abort()

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _start(self, width: int, height: int) -> Process:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith(_KEPT_PREFIXES)
        }
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _VIEWER, str(self._run.path)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=kept
            | {
                "TEXTUAL_COLOR_SYSTEM": "truecolor",
                "TERM": "xterm-256color",
                "COLUMNS": str(width),
                "ROWS": str(height),
            },
            cwd="/",
            # ctrl-c is for the server, which then ends them.
            start_new_session=True,
        )

    async def _draw_until_it_ends(self, process: Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        said = asyncio.create_task(process.stderr.read())
        try:
            await self._draw(process.stdout)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass  # the viewer has gone, or the tab
        finally:
            await _ended(process)
            await self._explain(process, (await said).decode(errors="replace").splitlines())

    async def _explain(self, process: Process, said: list[str]) -> None:
        if not said and process.returncode != 0 and not self._ending:
            said = [f"tbtui: a viewer broke ({_status(process)})"]
        if process.returncode == 0:
            await self.close(WSCloseCode.OK, "You have left.")
        else:
            reason = "The viewer broke; tbtui serve says why."
            await self.close(WSCloseCode.INTERNAL_ERROR, reason)
        _say(*said)

    async def _draw(self, drawn: StreamReader) -> None:
        """Pass frames on until the viewer leaves; links, downloads and the like are ignored."""
        await drawn.readuntil(_PRELUDE)
        while True:
            kind = await drawn.readexactly(1)
            payload = await drawn.readexactly(int.from_bytes(await drawn.readexactly(4)))
            if kind == _DATA:
                await self._send(payload)
            elif kind == _META and json.loads(payload).get("type") == "exit":
                return

    async def _send(self, drawn: bytes | str) -> None:
        """Raises `ConnectionResetError` for a tab that has gone."""
        try:
            async with asyncio.timeout(_SLOWEST_SEC):
                if isinstance(drawn, str):
                    await self._websocket.send_str(drawn)
                else:
                    await self._websocket.send_bytes(drawn)
        except TimeoutError:
            self._abort()
            raise ConnectionResetError("the tab takes nothing any more") from None

    async def _obey(self, text: str, process: Process) -> None:
        """Do what the page says; what makes no sense is not from it, and left alone."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return
        match message:
            case ["stdin", str(keys)]:
                _tell(process, _DATA, keys.encode(errors="replace"))
            case ["resize", {"width": int(width), "height": int(height)}]:
                size = {"width": _clamp(width, _COLUMNS), "height": _clamp(height, _ROWS)}
                _tell_meta(process, "resize", **size)
            case ["ping", str(sent)]:
                await self._send(json.dumps(["pong", sent]))
            case ["focus" | "blur" as what]:
                _tell_meta(process, what)
            case _:
                pass


async def _ended(process: Process) -> None:
    """Wait for it with patience, while it draws what nobody reads any more."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_PATIENCE_SEC):
            while await process.stdout.read(1 << 16):
                pass
            await process.wait()
    except TimeoutError:
        _kill(process)
        await process.wait()


def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()


def _tell_meta(process: Process, what: str, **more: int) -> None:
    _tell(process, _META, json.dumps({"type": what, **more}).encode())


def _tell(process: Process, kind: bytes, payload: bytes) -> None:
    """Never waits: one that doesn't read must not keep the server from seeing the tab go."""
    assert process.stdin is not None
    pipe = process.stdin.transport
    if not pipe.is_closing() and pipe.get_write_buffer_size() < _UNREAD_BYTES:
        process.stdin.write(kind + len(payload).to_bytes(4) + payload)


def _status(process: Process) -> str:
    status = process.returncode or 0
    return f"exit status {status}" if status > 0 else f"by {signal.Signals(-status).name}"


def _say(*lines: str) -> None:
    for line in lines:
        sys.stderr.write(f"{visible(line)}\n")
    sys.stderr.flush()


def _within(text: str | None, default: int, bounds: tuple[int, int]) -> int:
    try:
        return _clamp(default if text is None else int(text), bounds)
    except ValueError:
        return default


def _clamp(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])
