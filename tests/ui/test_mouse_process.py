"""The mouse as a terminal tells of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.process import Session, start_process


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A live run in a window of 100 columns and 30 lines."""
    session = start_process(tmp_path, "stay")
    yield session
    session.process.kill()
    session.process.wait()


@pytest.mark.slow
def test_clicks_and_wheels_of_a_real_terminal_are_understood(session: Session) -> None:
    session.wait_for(b"append-07")
    assert b"\x1b[?1006h" in session.seen, "the terminal was asked for SGR reports"

    def mouse(button: int, column: int, line: int) -> None:
        """Pressed and let go; columns and lines from 1. Buttons 64 and 65 are the wheel's."""
        for end in "Mm" if button < 64 else "M":
            os.write(session.master, f"\x1b[<{button};{column};{line}{end}".encode())

    # The window has 30 lines: the summary's first is the fourth from below.
    mouse(0, 20, 27)
    session.wait_for(b"step timeline")
    session.seen = b""
    os.write(session.master, b"0")
    session.wait_for(b" in flight")
    mouse(0, 20, 29)
    session.wait_for(b"engine lag, worst")
    mouse(65, 20, 10)
    session.process.send_signal(signal.SIGTERM)
    assert session.finish() == 130
    assert session.cooked()
