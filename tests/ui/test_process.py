"""The app as a process in a real pty: exit codes, signals, the mouse, a broken screen, the log."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tbtui.ui.notifications import KEEP_TITLE, RESTORE_TITLE
from tests.ui.process import Session


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Session]]:
    """Starts the app in a mode of its script; whatever is left of it is killed."""
    with ExitStack() as sessions:
        yield lambda mode: sessions.enter_context(Session(tmp_path, mode))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_cleans_up_and_restores_the_terminal(
    start: Callable[[str], Session], number: signal.Signals
) -> None:
    session = start("stay")
    session.wait_for(b"append-07")
    session.process.send_signal(number)
    assert session.ended() == 130
    assert session.cooked
    assert session.outcome() == "interrupted"
    assert session.last_line == "tbtui: stopped by a person"
    log = session.run.log.read_text()
    assert "stray write to 1" in log
    assert "stray write to 2" in log
    assert b"stray" not in session.seen


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False], ids=["signal", "silence"])
def test_a_terminal_that_goes_away_stops_the_run(
    start: Callable[[str], Session], told: bool
) -> None:
    session = start("stay")
    session.wait_for(b"append-07")
    session.goes_away()
    if told:
        session.process.send_signal(signal.SIGHUP)
    assert session.process.wait() == 130
    assert session.outcome() == "interrupted"


@pytest.mark.slow
def test_a_broken_screen_ends_the_engine_and_says_why(start: Callable[[str], Session]) -> None:
    session = start("crash")
    assert session.ended() == 1
    assert session.cooked
    assert session.outcome() == "interrupted"
    assert session.last_line.startswith("tbtui: the screen broke (ValueError: a pane [/] broke)")
    assert "Traceback" in session.run.log.read_text()


@pytest.mark.parametrize(
    ("mode", "sign", "code"), [("fail", b"The run has failed", 1), ("run", b"has finished", 0)]
)
def test_when_the_run_is_over_q_leaves_with_its_exit_code_and_the_title_is_given_back(
    start: Callable[[str], Session], mode: str, sign: bytes, code: int
) -> None:
    session = start(mode)
    session.wait_for(sign)
    before = session.shows()
    session.type("q")
    assert session.ended() == code
    assert session.cooked
    seen = (before + session.seen).decode(errors="replace")
    assert seen.count(KEEP_TITLE) == seen.count(RESTORE_TITLE) == 1
    assert seen.index(KEEP_TITLE) < seen.index("\x1b]2;") < seen.index(RESTORE_TITLE)
    if mode == "fail":
        assert session.last_line == "tbtui: no space left"
        titles = re.findall("\x1b\\]2;(.*?)\a", seen)
        assert titles[-1] == "! tbtui run: the run has failed"
        assert "\x1b]9;tbtui: the run has failed\a\a" in seen


@pytest.mark.slow
def test_clicks_and_wheels_of_a_real_terminal_are_understood(
    start: Callable[[str], Session],
) -> None:
    session = start("stay")
    session.wait_for(b"append-07")
    assert b"\x1b[?1006h" in session.seen, "the terminal was asked for SGR reports"

    def mouse(button: int, column: int, line: int) -> None:
        """Pressed and let go; columns and lines from 1. Buttons 64 and 65 are the wheel's."""
        for end in "Mm" if button < 64 else "M":
            session.type(f"\x1b[<{button};{column};{line}{end}")

    # The window has 30 lines: the summary's first is the fourth from below.
    mouse(0, 20, 27)
    session.wait_for(b"step timeline")
    session.type("0")
    session.wait_for(b" in flight")
    mouse(0, 20, 29)
    session.wait_for(b"engine lag, worst")
    mouse(65, 20, 10)
    session.process.send_signal(signal.SIGTERM)
    assert session.ended() == 130
    assert session.cooked
