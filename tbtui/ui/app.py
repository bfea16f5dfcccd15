"""Runs the app around an engine: whatever happens, the engine ends cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.attention import RESTORE_TITLE
from tbtui.ui.far_end import until_gone
from tbtui.ui.host import RunHost, WatchedRun
from tbtui.ui.life import FAILED
from tbtui.ui.stdio import output_to
from tbtui.ui.user import User
from tbtui.user_dirs import config_dir, state_dir

if TYPE_CHECKING:
    from tbtui.ui.library import TaskLibrary
    from tbtui.ui.replayed import ReplayedRun
    from tbtui.ui.review_rules import AddRule
    from tbtui.ui.trial_tools import TrialTools

__all__ = ["TbtuiApp", "run_app"]


def run_app(
    host: RunHost,
    recorded: ReplayedRun | None = None,
    trial: str | None = None,
    *,
    library: Callable[[RunDirectory], TaskLibrary] | None = None,
    trial_tools: Callable[[], TrialTools] | None = None,
    join: Callable[[RunDirectory], RunHost] = WatchedRun,
    add_rule: AddRule | None = None,
    guest: bool = False,
    fps: int | None = None,
) -> int:
    """Show the run until people leave it; returns the exit code.

    With `recorded` the host's run is replayed by that. With `trial` that trial is open.
    `library` makes what the task browser shows of a run, `trial_tools` what exports trials, `join`
    the host of another live run. A `guest` is no user of this machine: see `TbtuiApp`. `fps` are
    frames a second, from 1 to 10; without them the person's setting counts.

    0: the run finished. 1: it failed, or the screen broke; the reason is the last line on
    stderr. 130: it was stopped by a key or a signal. The engine has ended and cleaned up when
    this returns, unless somebody insisted on leaving at once. 0, too, when people leave a run
    that goes on without them, or is over.
    """
    app = TbtuiApp(
        host,
        recorded=recorded,
        trial=trial,
        library=library,
        trial_tools=trial_tools,
        join=join,
        add_rule=add_rule,
        guest=guest,
        user=User.load(config_dir(), state_dir()),
        fps=fps,
    )
    try:
        # The log is of the process that runs the run.
        with output_to(Path(os.devnull) if host.outlives else host.directory.log):
            asyncio.run(_run(app))
            if app.attention.titled:
                _restore_title()
    except OSError as error:
        return _say(f"the screen can't be shown ({error})", FAILED)
    if (crash := app.crash) is not None and host.outlives:
        return _say(f"the screen broke ({_described(crash)}); the run is untouched", FAILED)
    if crash is not None:
        return _say(
            f"the screen broke ({_described(crash)}); the run was "
            f"stopped and cleaned up; details: {host.directory.log}",
            FAILED,
        )
    if host.outlives and app.life.left_it:
        return app.life.exit_code
    if app.life.insisted:
        return _say("left before everything was cleaned up", app.life.exit_code)
    if app.run_end is not None and app.run_end.status != "finished":
        return _say(_one_line(app.run_end.reason), app.life.exit_code)
    return app.life.exit_code


async def _run(app: TbtuiApp) -> None:
    loop = asyncio.get_running_loop()
    handlers = {
        signal.SIGTERM: app.life.interrupt_from_outside,
        signal.SIGINT: app.life.interrupt_from_outside,
        signal.SIGHUP: app.life.hang_up,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    watching = asyncio.create_task(_hang_up_when_gone(app))
    try:
        await app.run_async()
    finally:
        watching.cancel()
        await app.life.clean_up()
        for number in handlers:
            loop.remove_signal_handler(number)


async def _hang_up_when_gone(app: TbtuiApp) -> None:
    await until_gone(sys.stdin.fileno())
    app.life.hang_up()


def _restore_title() -> None:
    """To where the app has drawn, which need not be this process's stderr."""
    screen = sys.__stderr__
    assert screen is not None
    with contextlib.suppress(OSError):
        # The terminal may have gone, and its title with it.
        screen.write(RESTORE_TITLE)
        screen.flush()


def _say(text: str, code: int) -> int:
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        # The terminal may have gone; then nobody is left to tell.
        os.write(2, f"tbtui: {text}\n".encode(errors="replace"))
    return code


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {_one_line(str(error))}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
