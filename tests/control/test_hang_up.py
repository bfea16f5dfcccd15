"""A terminal that goes away under a real run: its other end is closed, as by a lost connection."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbtui.journal.events import RunFinished, StepFinished, TrialPhaseChanged
from tbtui.journal.rundir import writer
from tests.control.test_detached_run import Shell

BEGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
fcntl.ioctl(0, termios.TIOCSWINSZ, b"\\x18\\0P\\0\\0\\0\\0\\0")
os.execv(sys.executable, [sys.executable, "-m", "tbtui", *sys.argv[1:]])
"""


class Terminal:
    """A run that has it as its controlling terminal, as one that was typed into a shell."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.shell = shell
        self._other_end, own = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *arguments],
            cwd=shell.where,
            env=shell.environment,
            stdin=own,
            stdout=own,
            stderr=own,
            start_new_session=True,
        )
        os.close(own)
        self.seen = b""

    def shows(self) -> bytes:
        while select.select([self._other_end], [], [], 0)[0]:
            try:
                self.seen += os.read(self._other_end, 65536)
            except OSError:
                break
        return self.seen

    def goes_away(self) -> None:
        self.shows()
        os.close(self._other_end)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.processes():
        process.kill()


@pytest.fixture
def begin(shell: Shell) -> Callable[..., Terminal]:
    """Start a run with these arguments, until its trials are at work."""

    def started(*arguments: str) -> Terminal:
        terminal = Terminal(shell, "run", *shell.settings(*arguments))

        def at_work() -> bool:
            terminal.shows()
            assert terminal.process.poll() is None, terminal.seen
            return shell.directory.database.exists() and bool(shell.events(TrialPhaseChanged))

        shell.until(at_work)
        return terminal

    return started


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["app", "lines"])
def test_the_run_goes_on_and_can_be_joined_and_stopped(
    shell: Shell, begin: Callable[..., Terminal], ui: str
) -> None:
    terminal = begin(*(["--no-ui"] if ui == "lines" else []))
    steps = len(shell.events(StepFinished))
    terminal.goes_away()
    shell.until(lambda: len(shell.events(StepFinished)) > steps + 1)
    # A shell that ends sends the signal once more.
    terminal.process.send_signal(signal.SIGHUP)
    steps = len(shell.events(StepFinished))
    shell.until(lambda: len(shell.events(StepFinished)) > steps)
    assert terminal.process.poll() is None
    said = shell.directory.log.read_text()
    assert f"tbtui attach {shell.directory.path}" in said
    assert said.count("the terminal has gone") == 1
    joined = Terminal(shell, "attach", "r", "--name", "ada")
    shell.until(lambda: b"attached" in joined.shows())

    def status() -> str:
        # An application whose terminal nobody reads waits for it, and for nothing else.
        joined.shows()
        return str(shell.asked("run", "show")["status"])

    os.write(joined._other_end, b"P")
    shell.until(lambda: status() == "paused" and b"paused" in joined.seen)
    os.write(joined._other_end, b"P")
    shell.until(lambda: status() != "paused")
    joined.goes_away()
    joined.process.wait(30)
    assert shell.asked("run", "stop", "r", "--reason", "enough", "--actor", "ada")["ok"]
    assert terminal.process.wait(60) == 130
    (finished,) = shell.events(RunFinished)
    assert (finished.status, finished.reason) == ("interrupted", "stopped by ada: enough")
    lines = shell.directory.output.read_text()
    assert "\nstep " in lines
    assert lines.endswith("interrupted: stopped by ada: enough\n")
    shell.until(lambda: not shell.processes())
    assert not shell.directory.control_socket.exists()
    assert writer(shell.directory) is None


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["app", "lines"])
def test_a_signal_ends_it_cleanly_and_it_can_be_resumed(
    shell: Shell, begin: Callable[..., Terminal], ui: str
) -> None:
    terminal = begin(*(["--no-ui"] if ui == "lines" else []))
    terminal.goes_away()
    shell.until(lambda: "the terminal has gone" in shell.directory.log.read_text())
    terminal.process.terminate()
    assert terminal.process.wait(60) == 130
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted"]
    shell.until(lambda: not shell.processes())
    result = shell.tbtui("run", "--no-ui", "--resume", "r", "max_steps=1")
    assert result.returncode == 0, result.stderr
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted", "finished"]


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["app", "lines"])
def test_on_hangup_stop_ends_it(shell: Shell, begin: Callable[..., Terminal], ui: str) -> None:
    terminal = begin("on_hangup=stop", *(["--no-ui"] if ui == "lines" else []))
    terminal.goes_away()
    assert terminal.process.wait(60) == 130
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted"]
    shell.until(lambda: not shell.processes())
    assert "the terminal has gone" not in shell.directory.log.read_text()
