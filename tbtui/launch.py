"""Starts a prepared run in the way that was asked for."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from typing import Literal

import typer

from tbtui.config import RunConfig
from tbtui.engines.request import REFUSED, RunRequest, request_run
from tbtui.journal.events import Entry, RunFinished

View = Literal["app", "lines", "json"]

EXIT = {"finished": 0, "failed": 1, "refused": 2, "interrupted": 130}


def launch(config: RunConfig, view: View) -> int:
    """Run and return the exit status: 0 finished, 1 failed, 2 bad input, 130 interrupted."""
    try:
        request = request_run(config)
    except REFUSED as error:
        return _refused(error)
    # A log that can't be written must not write about that over the screen.
    logging.raiseExceptions = False
    logging.basicConfig(
        filename=request.directory.log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    return _in_app(request) if view == "app" else _in_console(request, view)


def _refused(error: object) -> int:
    typer.echo(f"tbtui: {error}", err=True)
    return EXIT["refused"]


def _in_app(request: RunRequest) -> int:
    from tbtui.engines.host import EngineThread
    from tbtui.ui.app import run_app

    # The rest of the preparation is the engine's, and comes after the first frame.
    return run_app(EngineThread(request))


def _in_console(request: RunRequest, view: View) -> int:
    from tbtui.console import HumanLines, end_line, follow, json_line
    from tbtui.engines.headless import run_headless
    from tbtui.engines.prepare import BAD_INPUT, prepare_run

    try:
        prepared = prepare_run(request)
    except BAD_INPUT as error:
        return _refused(error)
    gc.enable()
    human = HumanLines()
    last: Entry | None = None

    def lines(entry: Entry) -> Iterator[str]:
        nonlocal last
        last = entry
        return human.lines(entry) if view == "lines" else iter([json_line(entry)])

    try:
        end = run_headless(
            prepared, lambda complete: follow(prepared.directory, complete, lines, sys.stdout)
        )
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT["interrupted"]
    if last is None or not isinstance(last.event, RunFinished):
        # The journal could not be written to its end, and that is why.
        typer.echo(end_line(end.status, end.reason), err=view == "json")
    return EXIT[end.status]
