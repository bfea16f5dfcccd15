"""`tbtui replay`: a recorded run on the screen, with a clock."""

from __future__ import annotations

from typing import Literal

from tbtui.command_line import refuse
from tbtui.config import parse_settings
from tbtui.errors import UserError
from tbtui.journal.database import require_format
from tbtui.journal.rundir import RunDirectory, find_run
from tbtui.journal.timeline import find_trial
from tbtui.terminal import on_terminal

Start = Literal["start", "end"]


class ReplayError(UserError):
    """The run can't be replayed as asked; the message is one line for a person."""


def replay(run: str, trial: str | None, at: Start, fps: int | None = None) -> int:
    """Show a recorded run, with `fps` frames a second; returns the exit status."""
    try:
        directory = find_run(run, parse_settings([]).logs_dir)
        require_format(directory)
        opened = None if trial is None else find_trial(directory, trial)
        if not on_terminal():
            raise ReplayError("replay needs a terminal; without one: tbtui runs --json")
        return _show(directory, opened, at, fps)
    except UserError as error:
        refuse(error)


def _show(directory: RunDirectory, trial: str | None, at: Start, fps: int | None) -> int:
    from tbtui.show_run import show_run
    from tbtui.ui.runs import ReplayedRun
    from tbtui.ui.services import RecordedRun

    recorded = ReplayedRun(directory)
    clock = recorded.playback
    start, end = recorded.span(trial) if trial else (clock.start, clock.end)
    clock.go_to(end if at == "end" else start)
    clock.playing = at == "start"
    return show_run(RecordedRun(directory), recorded, trial, fps=fps)
