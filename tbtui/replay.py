"""`tbtui replay`: a recorded run on the screen, with a clock."""

from __future__ import annotations

import gc
import sqlite3
import sys
from typing import Literal

import typer

from tbtui.config import ConfigError, parse_settings
from tbtui.engines.resume import find_run
from tbtui.journal.rundir import RunDirectory, RunDirectoryError
from tbtui.journal.timeline import Timeline
from tbtui.journal.writer import JournalError, require_format

Start = Literal["start", "end"]

_BAD_INPUT = 2
_SHOWN = 5
"""Trials that are named where one was meant."""


class ReplayError(Exception):
    """The run can't be replayed as asked; the message is one line for a person."""


def replay(run: str, trial: str | None, at: Start, fps: int | None = None) -> int:
    """Show a recorded run, with `fps` frames a second; returns the exit status."""
    try:
        directory = find_run(run, parse_settings([]).logs_dir)
        require_format(directory)
        opened = None if trial is None else find_trial(directory, trial)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ReplayError("replay needs a terminal; without one: tbtui runs --json")
        return _show(directory, opened, at, fps)
    except (ConfigError, JournalError, ReplayError, RunDirectoryError) as error:
        typer.echo(f"tbtui: {error}", err=True)
    except sqlite3.Error as error:
        typer.echo(f"tbtui: {directory.database}: can't be read ({error})", err=True)
    return _BAD_INPUT


def _show(directory: RunDirectory, trial: str | None, at: Start, fps: int | None) -> int:
    from tbtui.trial_tools import make_trial_tools
    from tbtui.ui.app import run_app
    from tbtui.ui.host import RecordedRun
    from tbtui.ui.replayed import ReplayedRun

    recorded = ReplayedRun(directory)
    clock = recorded.playback
    start, end = recorded.span(trial) if trial else (clock.start, clock.end)
    clock.go_to(end if at == "end" else start)
    clock.playing = at == "start"
    gc.enable()
    return run_app(RecordedRun(directory), recorded, trial, trial_tools=make_trial_tools, fps=fps)


def find_trial(directory: RunDirectory, name: str) -> str:
    """The id of the trial that is called so: by its id, or by its label or the start of one.

    Of several attempts at the same place the first is meant, of several steps none.

    Raises:
        ReplayError: there is none, or more than one.
    """
    timeline = Timeline(directory)
    try:
        found = timeline.find_trials(name)
    finally:
        timeline.close()
    if not found:
        raise ReplayError(f"{name}: no such trial in {directory.name}; write its label (copy-03/2)")
    if len(found) > 1:
        names = [f"{trial} ({label}, step {step})" for trial, label, step in found[:_SHOWN]]
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ReplayError(f"{name}: {len(found)} trials are called so: {', '.join(names)}{more}")
    return found[0][0]
