"""A run that outlives the terminal it was started from.

The process divides: one half leaves the terminal and becomes the run, in a session of its own with
its output in the run directory; the other half waits until the run has begun, says where it is,
and ends. Until then a failure is reported as it would be without detaching, and so is ctrl-c: who
gets an exit status other than 0 has no run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

import typer

from tbtui.command_line import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    TOO_EARLY,
    Interrupted,
    interruptible,
    say,
)
from tbtui.engines.request import RunRequest
from tbtui.journal.rundir import RunDirectory

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
    reader = JournalReader(directory)
    try:
        return max(reader.nth_last(kind, 1, reader.last_seq()) for kind in kinds)
    finally:
        reader.close()


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
    typer.echo(f"see it    tbtui attach {directory.path}")
    typer.echo(f"end it    tbtui ctl run stop {directory.path}")


def _reason(said: str, status: int) -> str:
    """The last line of what the run printed says why it ended."""
    lines = said.strip().splitlines()
    if status == EXIT_INTERRUPTED:
        return TOO_EARLY
    if status < 0:
        return f"the run's process was killed by {signal.Signals(-status).name}"
    if not lines:
        return f"the run ended with status {status} and said nothing"
    return lines[-1].removeprefix("tbtui: ").removeprefix("failed: ")
