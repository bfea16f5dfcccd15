"""Runs the app around an engine, which is cleaned up however the app ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tbtui.paths import config_dir, state_dir
from tbtui.ui.application import TbtuiApp
from tbtui.ui.lifecycle import FAILED
from tbtui.ui.notifications import RESTORE_TITLE
from tbtui.ui.services import NO_SERVICES, RunHost, Services
from tbtui.ui.terminal.tty import output_to, wait_for_hangup
from tbtui.ui.user import User

if TYPE_CHECKING:
    from tbtui.journal.rundir import RunDirectory
    from tbtui.ui.runs import ReplayedRun

__all__ = ["TbtuiApp", "run_app"]


def run_app(
    host: RunHost,
    services: Services = NO_SERVICES,
    *,
    recorded: ReplayedRun | None = None,
    trial: str | None = None,
    fps: int | None = None,
    beside: Sequence[RunDirectory] = (),
) -> int:
    """Show the run until people leave it; returns the exit code.

    With `recorded` the host's run is replayed by that. With `trial` that trial is open; with runs
    `beside` it the charts are, of all of them. `fps` are
    frames a second, from 1 to 10; without them the person's setting counts.

    0: the run finished. 1: it failed, or the screen broke; the reason is the last line on
    stderr. 130: it was stopped by a key or a signal. The engine has ended and cleaned up when
    this returns, unless a person insisted on leaving at once. 0, too, when people leave a run
    that goes on without them, or is over.

    Where the terminal goes away and the host lets the run go on without it (`RunHost.hang_up`), or
    a person detaches (`Services.detach`), the engine has not ended when this returns; SIGHUP is
    ignored from then on.
    """
    app = TbtuiApp(
        host,
        services,
        recorded=recorded,
        trial=trial,
        user=User.load(config_dir(), state_dir()),
        fps=fps,
        beside=beside,
    )
    try:
        # The log is of the process that runs the run.
        with output_to(Path(os.devnull) if host.outlives else host.directory.log):
            asyncio.run(_run(app))
            if app.attention.titled:
                _restore_title()
    except OSError as error:
        return _say(f"the screen can't be shown ({error})", FAILED)
    if services.detach is not None and app.lifecycle.detached:
        _print(services.detach())
    elif not app.lifecycle.unattended:
        _print(services.farewell())
    if (crash := app.crash) is not None and host.outlives:
        return _say(f"the screen broke ({_described(crash)}); the run is untouched", FAILED)
    if crash is not None:
        return _say(
            f"the screen broke ({_described(crash)}); the run was "
            f"stopped and cleaned up; details: {host.directory.log}",
            FAILED,
        )
    if app.lifecycle.follow_up:
        _become(app.lifecycle.follow_up, str(host.directory.path))
    if host.outlives and app.lifecycle.left:
        return app.lifecycle.exit_code
    if app.lifecycle.insisted:
        return _say("left before everything was cleaned up", app.lifecycle.exit_code)
    if (end := app.own.end) is not None and end.status != "finished":
        return _say(_one_line(end.reason), app.lifecycle.exit_code)
    return app.lifecycle.exit_code


async def _run(app: TbtuiApp) -> None:
    loop = asyncio.get_running_loop()
    lifecycle = app.lifecycle
    numbers = (signal.SIGTERM, signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if lifecycle.unattended:
            # The app is leaving or has left: the run that goes on is what ends.
            app.own.host.interrupt()
        else:
            loop.call_soon_threadsafe(lifecycle.interrupt_from_outside)

    # The loop's own way to take a handler back would leave a moment in which the signal kills.
    for number in numbers:
        signal.signal(number, interrupt)
    signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(lifecycle.hang_up))
    watching = asyncio.create_task(_hang_up_when_gone(app))
    try:
        await app.run_async()
    finally:
        watching.cancel()
        await lifecycle.clean_up()
        if lifecycle.unattended:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        else:
            for number in (*numbers, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)


async def _hang_up_when_gone(app: TbtuiApp) -> None:
    await wait_for_hangup(sys.stdin.fileno())
    app.lifecycle.hang_up()


def _become(*command: str) -> NoReturn:
    """Go on as another tbtui command: the run has ended, and its processes with it."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "tbtui", *command])


def _restore_title() -> None:
    """Restore the terminal's title where the app has drawn, which need not be our stderr."""
    screen = sys.__stderr__
    assert screen is not None
    with contextlib.suppress(OSError):
        # The terminal may have gone, and its title with it.
        screen.write(RESTORE_TITLE)
        screen.flush()


def _print(lines: Sequence[str]) -> None:
    with contextlib.suppress(OSError):
        # The terminal may have gone.
        for line in lines:
            print(line)  # noqa: T201 - the screen is over, and this is the terminal again
        sys.stdout.flush()


def _say(text: str, code: int) -> int:
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        # The terminal may have gone; then there is nowhere to print.
        os.write(2, f"tbtui: {text}\n".encode(errors="replace"))
    return code


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {_one_line(str(error))}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
