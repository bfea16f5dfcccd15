"""Runs the app around an engine: whatever happens, the engine ends cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from tbtui.ui.application import FAILED, TbtuiApp
from tbtui.ui.host import RunHost
from tbtui.ui.stdio import output_to

__all__ = ["TbtuiApp", "run_app"]


def run_app(host: RunHost) -> int:
    """Show the run until people leave it; returns the exit code.

    0: the run finished. 1: it failed, or the screen broke; the reason is the last line on
    stderr. 130: it was stopped by a key or a signal. The engine has ended and cleaned up when
    this returns, unless somebody insisted on leaving at once.
    """
    app = TbtuiApp(host)
    try:
        with output_to(host.directory.log):
            asyncio.run(_run(app))
    except OSError as error:
        return _say(f"the screen can't be shown ({error})", FAILED)
    if (crash := app.crash) is not None:
        return _say(
            f"the screen broke ({type(crash).__name__}: {_one_line(str(crash))}); the run was "
            f"stopped and cleaned up; details: {host.directory.log}",
            FAILED,
        )
    if app.insisted:
        return _say("left before everything was cleaned up", app.exit_code)
    if app.run_end is not None and app.run_end.status != "finished":
        return _say(_one_line(app.run_end.reason), app.exit_code)
    return app.exit_code


async def _run(app: TbtuiApp) -> None:
    loop = asyncio.get_running_loop()
    handlers = {
        signal.SIGTERM: app.interrupt_from_outside,
        signal.SIGINT: app.interrupt_from_outside,
        signal.SIGHUP: app.hang_up,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        await app.run_async()
    finally:
        await app.end_engine()
        for number in handlers:
            loop.remove_signal_handler(number)


def _say(text: str, code: int) -> int:
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        # The terminal may have gone; then nobody is left to tell.
        os.write(2, f"tbtui: {text}\n".encode(errors="replace"))
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())
