"""Keeps stray output off the screen: file descriptors 1 and 2 go to a log while the app runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_to(log: Path, screen: int | None = None) -> Iterator[None]:
    """Everything that this process and its children print goes to `log`; the app keeps the tty.

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
