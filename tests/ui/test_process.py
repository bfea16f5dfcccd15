"""The app as a process in a real pty: exit codes, signals, a broken screen, the log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tbtui.journal.events import RunFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_APP = """
import os, sys
from pathlib import Path
from synthetic import SyntheticHost
from tbtui.ui.app import run_app
from tbtui.ui.panes.bars import KeyBar

mode, directory = sys.argv[1], Path(sys.argv[2])
if mode == "crash":
    def broken(self, frame):
        if frame.state.trials:
            raise ValueError("a pane [/] broke")
        return None
    KeyBar.key = broken
host = SyntheticHost(
    directory,
    steps=2,
    tempo=30.0 if mode in ("run", "fail") else 4.0,
    fail="no space left" if mode == "fail" else "",
)
start = host.start
def noisy_start():
    print("stray print of a library", flush=True)
    os.write(1, b"stray write to 1\\n")
    os.write(2, b"stray write to 2\\n")
    start()
host.start = noisy_start
sys.exit(run_app(host))
"""


@dataclass
class Session:
    process: subprocess.Popen[bytes]
    master: int
    slave: int
    run: RunDirectory
    seen: bytes = b""

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            self.seen += os.read(self.master, 65536)

    def finish(self) -> int:
        """Drain until the process has ended; returns its exit code."""
        os.set_blocking(self.master, False)
        while self.process.poll() is None:
            self._drain()
        self._drain()
        return self.process.returncode

    def _drain(self) -> None:
        import select

        while select.select([self.master], [], [], 0.05)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                return

    @property
    def last_line(self) -> str:
        """What follows the last escape of the screen's end."""
        return re.split(r"\x1b\[[^A-Za-z]*[A-Za-z]", self.seen.decode(errors="replace"))[-1].strip()

    def cooked(self) -> bool:
        return bool(termios.tcgetattr(self.slave)[3] & termios.ICANON)

    def outcome(self) -> str:
        last = JournalReader(self.run).read(0, 10**6)[-1].event
        assert isinstance(last, RunFinished)
        return last.status


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Session]]:
    """Starts the app in a mode of its script; whatever is left of it is killed."""
    sessions: list[Session] = []

    def begin(mode: str) -> Session:
        sessions.append(_start(tmp_path, mode))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.process.kill()
        session.process.wait()


def _start(tmp_path: Path, mode: str) -> Session:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    directory = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", _APP, mode, str(directory)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={
            **os.environ,
            "TERM": "xterm-256color",
            "PYTHONPATH": str(Path(__file__).parent),
        },
        start_new_session=True,
    )
    return Session(process, master, slave, RunDirectory(directory))


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
def test_a_terminal_that_goes_away_stops_the_run(start: Callable[[str], Session]) -> None:
    session = start("stay")
    session.wait_for(b"append-07")
    os.close(session.slave)
    os.close(session.master)
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
    [("fail", b"has failed", 1, "tbtui: no space left"), ("run", b"is finished", 0, "")],
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
