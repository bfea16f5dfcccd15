"""Starts a prepared run in the way that was asked for."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from tbtui.command_line import EXIT
from tbtui.config import RunConfig
from tbtui.config.secrets import load_secrets
from tbtui.engines.request import REFUSED, RunRequest, request_run
from tbtui.interruption import TOO_EARLY, Interrupted, interruptible

if TYPE_CHECKING:
    from tbtui.journal.events import Entry

View = Literal["app", "lines", "json"]


def launch(config: RunConfig, view: View, *, detach: bool = False, fps: int | None = None) -> int:
    """Run and return the exit status: 0 finished, 1 failed, 2 bad input, 130 interrupted.

    With `detach` the run goes on in a process of its own, and `view` is of the record that says
    so: see `tbtui.detach`. `fps` are frames a second in the app; None: the person's setting.
    """
    try:
        load_secrets(Path.cwd())
        request = request_run(config)
    except REFUSED as error:
        return _refused(error)
    return _start(request, view, detach, fps)


def resume(
    run: str,
    settings: Sequence[str],
    view: View,
    *,
    detach: bool = False,
    fps: int | None = None,
) -> int:
    """Go on with a run, by its directory or by its name; the exit status is `launch`'s."""
    from tbtui.engines.resume import request_resume
    from tbtui.journal.database import JournalError

    try:
        load_secrets(Path.cwd())
        request = request_resume(run, settings)
    except (*REFUSED, JournalError) as error:
        return _refused(error)
    return _start(request, view, detach, fps)


def _start(request: RunRequest, view: View, detach: bool, fps: int | None) -> int:
    if not detach:
        return _run(request, view, fps)
    from tbtui.detach import detached

    return detached(request, lambda: _run(request, "lines", None), as_json=view == "json")


def _run(request: RunRequest, view: View, fps: int | None) -> int:
    # A log that can't be written must not write about that over the screen.
    logging.raiseExceptions = False
    logging.basicConfig(
        filename=request.directory.log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    status: int | None = None
    try:
        # Until the event loop sees to signals: what is imported before takes seconds.
        with interruptible() as heed:
            if view == "app":
                status = _in_app(request, fps, heed)
            else:
                status = _in_console(request, view, heed)
        return status
    except Interrupted:
        typer.echo(f"tbtui: {TOO_EARLY}", err=True)
        return EXIT["interrupted"]
    finally:
        if status == EXIT["refused"] or not request.directory.database.exists():
            # It never began, and its name stays free.
            request.discard()


def _refused(error: object) -> int:
    typer.echo(f"tbtui: {error}", err=True)
    return EXIT["refused"]


def _in_app(request: RunRequest, fps: int | None, heed: Callable[[], None]) -> int:
    from tbtui.engines.host import EngineThread
    from tbtui.show_run import show_run

    heed()
    # The rest of the preparation is the engine's, and comes after the first frame.
    return show_run(EngineThread(request), fps=fps)


def _in_console(request: RunRequest, view: View, heed: Callable[[], None]) -> int:
    from tbtui.engines.make_run import BAD_INPUT, prepare

    try:
        make = prepare(request)
    except BAD_INPUT as error:
        return _refused(error)
    if view == "lines":
        # Importing the engine takes a while.
        typer.echo(f"start   {request.directory.path}")
    from tbtui.console import HumanLines, end_line, follow, json_line
    from tbtui.engines.control.run import ControlledRun
    from tbtui.engines.headless import run_headless
    from tbtui.journal.events import RunFinished

    gc.enable()
    before = _last_seq(request)
    human = HumanLines()
    last: Entry | None = None

    def lines(entry: Entry) -> Iterator[str]:
        nonlocal last
        last = entry
        return human.lines(entry) if view == "lines" else iter([json_line(entry)])

    run = ControlledRun(make(), request.directory)
    heed()
    try:
        end = run_headless(
            run.run(),
            lambda complete: follow(request.directory, complete, lines, sys.stdout, before),
        )
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT["interrupted"]
    if last is None or not isinstance(last.event, RunFinished):
        # The journal could not be written to its end, and that is why.
        typer.echo(end_line(end.status, end.reason), err=view == "json")
    return EXIT[end.status]


def _last_seq(request: RunRequest) -> int:
    """The last event of an earlier part of the run; 0 for a new one."""
    from tbtui.journal.reader import JournalReader

    if not request.directory.database.exists():
        return 0
    reader = JournalReader(request.directory)
    try:
        return reader.last_seq()
    finally:
        reader.close()
