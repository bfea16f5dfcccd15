"""The app as a process in a real pty: exit codes, signals, a broken screen, the log."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ui.process import Session, start_process


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Session]]:
    """Starts the app in a mode of its script; whatever is left of it is killed."""
    sessions: list[Session] = []

    def begin(mode: str) -> Session:
        sessions.append(start_process(tmp_path, mode))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.process.kill()
        session.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_cleans_up_and_restores_the_terminal(
    start: Callable[[str], Session], number: signal.Signals
) -> None:
    session = start("stay")
    session.wait_for(b"append-07")
    session.process.send_signal(number)
    assert session.finish() == 130
    assert session.cooked()
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
    os.close(session.slave)
    os.close(session.master)
    if told:
        session.process.send_signal(signal.SIGHUP)
    assert session.process.wait() == 130
    assert session.outcome() == "interrupted"


@pytest.mark.slow
def test_a_broken_screen_ends_the_engine_and_says_why(start: Callable[[str], Session]) -> None:
    session = start("crash")
    assert session.finish() == 1
    assert session.cooked()
    assert session.outcome() == "interrupted"
    assert session.last_line.startswith("tbtui: the screen broke (ValueError: a pane [/] broke)")
    assert "Traceback" in session.run.log.read_text()


@pytest.mark.parametrize(
    ("mode", "sign", "code", "last"),
    [("fail", b"has failed", 1, "tbtui: no space left"), ("run", b"has finished", 0, "")],
)
def test_when_the_run_is_over_q_leaves_with_its_exit_code(
    start: Callable[[str], Session], mode: str, sign: bytes, code: int, last: str
) -> None:
    session = start(mode)
    session.wait_for(sign)
    os.write(session.master, b"q")
    assert session.finish() == code
    assert session.cooked()
    if last:
        assert session.last_line == last
