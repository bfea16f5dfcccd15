"""The process of one browser tab: `python -m tbtui.serve.viewer RUN_DIRECTORY`.

It speaks Textual's web protocol on its standard input and output, and ends with them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, override

from textual import messages
from textual.driver import Driver
from textual.drivers.web_driver import WebDriver

from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, writer
from tbtui.paths import config_dir, state_dir
from tbtui.ui.application import TbtuiApp
from tbtui.ui.drawing.text import visible
from tbtui.ui.lifecycle import FAILED
from tbtui.ui.services import Services, WatchedRun
from tbtui.ui.terminal.tty import output_to
from tbtui.ui.user import Preferences, User

if TYPE_CHECKING:
    from tbtui.ui.runs import ReplayedRun

_STDOUT = 1


class ServedRun(WatchedRun):
    """A run, live or not, that is looked at through its files alone."""

    read_only = "this page can't steer"


class PageDriver(WebDriver):
    """Ends the app with its input: the server has gone, however it went."""

    @override
    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._app.post_message(messages.ExitApp())


class PageApp(TbtuiApp):
    """Drawn by a page."""

    @override
    def get_driver_class(self) -> type[Driver]:
        return PageDriver


def main() -> int:
    gc.disable()
    directory = RunDirectory(Path(sys.argv[1]))
    # The theme and the keys of the person who serves it; what visitors do is not kept.
    theirs = User.load(config_dir(), state_dir())
    user = replace(
        theirs, preferences=Preferences(theme=theirs.preferences.theme), remembered_in=None
    )
    try:
        recorded = None if writer(directory) is not None else _at_its_end(directory)
    except (JournalError, RunDirectoryError) as error:
        return _say(f"{directory.path}: can't be shown ({error})")
    app = PageApp(ServedRun(directory), recorded=recorded, user=user, services=Services(guest=True))
    with output_to(Path(os.devnull), screen=_STDOUT):
        try:
            asyncio.run(_show(app))
        except BrokenPipeError:
            return FAILED  # the server has gone: nobody is left to read it
    if app.crash is not None:
        return _say(f"a viewer broke ({type(app.crash).__name__}: {app.crash})")
    return 0


def _at_its_end(directory: RunDirectory) -> ReplayedRun:
    # It brings every class of event along, which a live run's first frame needs not wait for.
    from tbtui.ui.runs import ReplayedRun

    recorded = ReplayedRun(directory)
    recorded.playback.go_to(recorded.playback.end)
    return recorded


async def _show(app: PageApp) -> None:
    try:
        await app.run_async()
    finally:
        await app.lifecycle.clean_up()


def _say(text: str) -> int:
    sys.stderr.write(f"tbtui: {visible(' '.join(text.split()))}\n")
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
