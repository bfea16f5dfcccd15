"""The terminal that the app runs in: its output, its clipboard, a pager, the end of it."""

from __future__ import annotations

import asyncio
import functools
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from rich.style import Style
from textual.app import SuspendNotSupported

from tbtui.ui.drawing.text import visible_lines

if TYPE_CHECKING:
    from textual.app import App


@contextmanager
def output_to(log: Path, screen: int | None = None) -> Iterator[None]:
    """Send all that this process and its children print to `log`; the app keeps the tty.

    Textual writes to `sys.__stderr__` and asks `sys.__stdout__` for the window's size: both are
    the terminal for as long. Raises `OSError` when the log can't be opened.

    Args:
        screen: the file descriptor, 1 or 2, that the app draws on; None: whichever is a terminal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept_out, kept_err = os.dup(1), os.dup(2)
    if screen is None:
        screen = 1 if os.isatty(kept_out) else 2
    terminal = os.dup(screen)
    before = sys.__stdout__, sys.__stderr__
    try:
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.dup2(log_fd, 1)
            os.dup2(log_fd, 2)
        finally:
            os.close(log_fd)
        drawn_on = os.fdopen(terminal, "w", encoding="utf-8", errors="replace")
        sys.__stdout__ = sys.__stderr__ = drawn_on  # type: ignore[misc]
        yield
    finally:
        sys.__stdout__, sys.__stderr__ = before  # type: ignore[misc]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(kept_out, 1)
        os.dup2(kept_err, 2)
        os.close(kept_out)
        os.close(kept_err)


_LOOK_SEC = 1.0


async def wait_for_hangup(descriptor: int) -> None:
    """Wait until the terminal, or the pipe in its place, has been closed at its other end.

    The kernel tells that by signal to those alone whose controlling terminal it was. Others, such
    as an app that was started with `setsid` or by a supervisor, would read its end for ever, as
    fast as they can.
    """
    poll = select.poll()
    poll.register(descriptor, 0)  # closed and broken are reported without being asked for
    while not poll.poll(0):  # noqa: ASYNC110 - no event can be set for it
        await asyncio.sleep(_LOOK_SEC)


MOST = 70_000
"""Bytes: what common terminals take from an OSC 52 sequence, before base64."""


def copy(app: App[int], text: str) -> str:
    """Copy it through the terminal (OSC 52); returns one line that says what was copied."""
    data = harmless(text).encode(errors="replace")
    part = data[:MOST].decode(errors="ignore")
    app.copy_to_clipboard(part)
    lines = part.count("\n") + 1
    size = f"{lines:,} lines" if lines > 1 else f"{len(part):,} characters"
    rest = f"; the first of {len(data):,} bytes" if len(data) > MOST else ""
    return f"{size}{rest}"


def page(app: App[int], text: str) -> str:
    """Show it in the user's pager, over the suspended app; returns what went wrong, or nothing.

    Signals that are meant for the pager don't reach the app.
    """
    import shlex  # not needed for the first frame

    wanted = os.environ.get("PAGER", "")
    try:
        command = shlex.split(wanted) or ["less"]
    except ValueError as error:
        return f"PAGER is {wanted}: {str(error).lower()}; set it to another program"
    try:
        with app.suspend():
            # Ignored, not handled: a handler's loop would stop the run when the pager has ended.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                # The terminal, by name: file descriptor 1 is a log's while the app runs.
                subprocess.run(
                    command,
                    input=harmless(text).encode(errors="replace"),
                    stdout=sys.__stdout__,
                    stderr=sys.__stderr__,
                    check=False,
                )
            finally:
                signal.signal(signal.SIGINT, before)
    except SuspendNotSupported:
        return "no pager: this terminal can't be handed to another program"
    except OSError as error:
        return f"{command[0]}: {error.strerror}; set PAGER to another program"
    return ""


@functools.cache
def file_link(path: Path) -> Style:
    """A style whose text is a hyperlink (OSC 8) to a file or directory of this machine."""
    # With the host's name: over ssh a terminal knows that the file is not on its own machine.
    return Style(link=f"file://{socket.gethostname()}{quote(os.fspath(path.absolute()))}")


def harmless(text: str) -> str:
    """Return the text's lines, with all other control characters made visible."""
    return "\n".join(visible_lines(text))
