"""Starts a prepared run in the way that was asked for: with a screen, without, or detached.

A detached run outlives the terminal it was started from. The process divides: one half leaves the
terminal and becomes the run, in a session of its own with its output in the run directory; the
other half waits until the run has begun, says where it is, and ends. Until then a failure is
reported as it would be without detaching, and so is ctrl-c: who gets an exit status other than 0
has no run.

With a screen, a small process waits in the shell's foreground for the one with the app and the run
(`tbtui.supervisor`), so that a person can detach later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from tbtui.command_line import (
    EXIT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    TOO_EARLY,
    Interrupted,
    interruptible,
    say,
)
from tbtui.config import RunConfig
from tbtui.config.sources import load_secrets
from tbtui.engines.request import RunRequest, request_run
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.ipc import exit_words
from tbtui.journal.rundir import RunDirectory
from tbtui.supervisor import Shell, supervised
from tbtui.terminal import visible

if TYPE_CHECKING:
    from tbtui.engines.host import EngineThread
    from tbtui.journal.events import Entry

Lines = Literal["lines", "json", "progress"]
View = Literal["app"] | Lines


def launch(config: RunConfig, view: View, *, detach: bool = False, fps: int | None = None) -> int:
    """Run and return the exit status: 0 finished, 1 failed, 2 bad input, 130 interrupted.

    With `detach` the run goes on in a process of its own, and `view` is of the record that says
    so: see `detached`. `fps` are frames a second in the app; None: the person's setting.
    """
    try:
        _load_secrets()
        request = request_run(config)
    except UserError as error:
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

    try:
        _load_secrets()
        request = request_resume(run, settings)
    except UserError as error:
        return _refused(error)
    return _start(request, view, detach, fps)


def _start(request: RunRequest, view: View, detach: bool, fps: int | None) -> int:
    if detach:
        return detached(request, lambda: _run(request, "lines"), as_json=view == "json")
    if view == "app":
        return supervised(lambda shell: _run(request, shell, fps))
    return _run(request, view)


def _run(request: RunRequest, view: Lines | Shell, fps: int | None = None) -> int:
    """Run as lines or JSON; or in the app, where the shell waits for another process."""
    status: int | None = None
    try:
        # Until the event loop sees to signals: what is imported before takes seconds.
        with interruptible() as raise_if_interrupted:
            _log_to(request.directory.log)
            if isinstance(view, Shell):
                status = _in_app(request, view, fps, raise_if_interrupted)
            else:
                status = _in_console(request, view, raise_if_interrupted)
        return status
    except Interrupted:
        say(TOO_EARLY)
        return EXIT["interrupted"]
    finally:
        if status == EXIT["refused"] or not request.directory.database.exists():
            # It never began, and its name stays free.
            request.discard()


def _log_to(path: Path) -> None:
    # A log that can't be written must not write about that over the screen.
    logging.raiseExceptions = False
    logging.basicConfig(
        filename=path,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # Each request with its address, which may have a password in it.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _load_secrets() -> None:
    if left_out := load_secrets(Path.cwd()):
        say(left_out)


def _refused(error: object) -> int:
    say(error)
    return EXIT["refused"]


def _in_app(
    request: RunRequest, shell: Shell, fps: int | None, raise_if_interrupted: Callable[[], None]
) -> int:
    from tbtui.engines.host import EngineThread
    from tbtui.engines.pacing import paced_for_app
    from tbtui.show_run import farewell, show_run

    raise_if_interrupted()
    # The rest of the preparation is the engine's, and comes after the first frame.
    host = EngineThread(dataclasses.replace(request, config=paced_for_app(request.config)))
    terminal = [number for number in (0, 1, 2) if os.isatty(number)]
    released = False

    def detach() -> list[str]:
        nonlocal released
        released = True
        host.detach()
        return farewell(host.directory, goes_on=True)

    status = show_run(host, fps=fps, detach=detach)
    if not host.unattended:
        return status
    from tbtui.console.printing import DETACHED, TERMINAL_GONE, redirect

    redirect(host.directory, terminal, DETACHED if released else TERMINAL_GONE)
    if released:
        shell.release()
    return _without_app(host)


def _without_app(host: EngineThread) -> int:
    """See a run through whose app has left."""
    from tbtui.console import HumanLines, Printer
    from tbtui.engines.host import run_headless

    # What came before was on the screen.
    printer = Printer(
        host.directory,
        lambda: HumanLines(_name(host.directory)).lines,
        _last_seq(host.directory),
        detaches=True,
    )
    return EXIT[run_headless(host.see_through(), printer.follow, printer.hang_up).status]


def _in_console(request: RunRequest, view: Lines, raise_if_interrupted: Callable[[], None]) -> int:
    from tbtui.engines.make_run import prepare

    try:
        make = prepare(request)
    except UserError as error:
        return _refused(error)
    if view == "lines":
        # Importing the engine takes a while.
        typer.echo(f"start   {visible(str(request.directory.path))}")
    from tbtui.console import HumanLines, Printer, ProgressLine, end_line, json_line
    from tbtui.engines.control.run import ControlledRun
    from tbtui.engines.host import run_headless

    gc.enable()
    name = _name(request.directory)
    lines: dict[Lines, Callable[[], Callable[[Entry], Iterator[str]]]] = {
        "lines": lambda: HumanLines(name).lines,
        "json": lambda: lambda entry: iter([json_line(entry)]),
        "progress": lambda: ProgressLine().lines,
    }
    printer = Printer(
        request.directory,
        lines[view],
        _last_seq(request.directory),
        detaches=request.config.on_hangup == "detach",
    )
    run = ControlledRun(make(), request.directory)
    raise_if_interrupted()
    end = run_headless(run.run(), printer.follow, printer.hang_up)
    if end.status == "refused":
        return _refused(end.reason)
    if printer.unread or not printer.complete:
        # Nobody has read it, it ended before it had begun, or the journal could not be written to
        # its end, and that is why.
        with contextlib.suppress(OSError):
            typer.echo(end_line(end.status, end.reason), err=view == "json" or printer.unread)
    return EXIT[end.status]


def _name(directory: RunDirectory) -> str:
    """The name, or path, by which a command without a logs_dir finds the run."""
    from tbtui.view.ending import name_to_type

    return name_to_type(directory, RunConfig().logs_dir)


def _last_seq(directory: RunDirectory) -> int:
    """The last event in the journal; 0: there is none yet."""
    from tbtui.journal.reader import JournalReader

    if not directory.database.exists():
        return 0
    with closing(JournalReader(directory)) as reader:
        return reader.last_seq()


_POLL_SEC = 0.05


def detached(request: RunRequest, start: Callable[[], int], *, as_json: bool) -> int:
    """Run `start` in a process of its own; returns in both processes, with their exit statuses.

    In the first one: 0 once the run has begun, after a record of where it is; else what a run in
    the terminal would have returned, and its process is gone.
    """
    directory = request.directory
    before = _last_begin(directory)
    sys.stdout.flush()
    with directory.output.open("ab+") as output:
        begin = output.tell()
        pid = os.fork()
        if pid == 0:
            _leave_terminal(output.fileno())
            return start()
        try:
            with interruptible():
                status = _wait(directory, pid, before)
        except Interrupted:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            status = EXIT_INTERRUPTED
        if status is None:
            _tell(directory, pid, as_json=as_json)
            return 0
        output.seek(begin)
        said = output.read().decode(errors="replace")
    if not directory.database.exists():
        # It came to its end before it could clean up.
        request.discard()
    say(_reason(said, status))
    return status if status > 0 else EXIT_FAILED


def _leave_terminal(output: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _wait(directory: RunDirectory, pid: int, before: int) -> int | None:
    """Wait until the run has begun (None), or ended first: its exit status, below 0 a signal."""
    while True:
        # In this order: one that has begun and ended since has begun.
        ended, status = os.waitpid(pid, os.WNOHANG)
        if _last_begin(directory) > before:
            return None
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_SEC)


def _last_begin(directory: RunDirectory) -> int:
    """Number of the event with which the run began, or last went on; 0: there is none."""
    from tbtui.journal.events import RunContinued, RunStarted
    from tbtui.journal.reader import JournalReader

    if not directory.database.exists():
        return 0
    kinds = [event.kind for event in (RunStarted, RunContinued)]
    with closing(JournalReader(directory)) as reader:
        return max(reader.nth_last(kind, 1, reader.last_seq()) for kind in kinds)


def _tell(directory: RunDirectory, pid: int, *, as_json: bool) -> None:
    socket = directory.control_socket if directory.control_socket.exists() else None
    record = {
        "record": "launch",
        "run": directory.name,
        "pid": pid,
        "directory": str(directory.path),
        "socket": None if socket is None else str(socket),
    }
    if as_json:
        typer.echo(json.dumps(record))
        return
    for name, value in record.items():
        if name != "record":
            typer.echo(f"{name:<10}{value or 'none: see log.txt'}")
    typer.echo(f"see it    {to_type('attach', directory.path)}")
    typer.echo(f"end it    {to_type('ctl', 'run', 'stop', directory.path)}")


def _reason(said: str, status: int) -> str:
    """The last line of what the run printed says why it ended."""
    lines = said.strip().splitlines()
    if status == EXIT_INTERRUPTED:
        return TOO_EARLY
    if status < 0:
        return f"the run's process was {exit_words(status)}"
    if not lines:
        return f"the run ended with status {status} and said nothing"
    return lines[-1].removeprefix("tbtui: ").removeprefix("failed: ")
