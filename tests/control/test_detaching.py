"""Detaching from a run in the app, under a real shell; and the process that the shell waits for."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tbtui.journal.events import RunFinished, StepFinished, TrialPhaseChanged
from tbtui.journal.rundir import writer
from tests.control.test_detached_run import Shell

BEGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
fcntl.ioctl(0, termios.TIOCSWINSZ, b"\\x28\\0x\\0\\0\\0\\0\\0")
os.execvp(sys.argv[1], sys.argv[1:])
"""
TBTUI = (sys.executable, "-m", "tbtui")


class Typed:
    """A program in a terminal that it controls, and what it has shown."""

    def __init__(self, shell: Shell, *command: str) -> None:
        self.shell = shell
        self.other_end, self.own_end = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *command],
            cwd=shell.where,
            env={**shell.environment, "PS1": "ready> "},
            stdin=self.own_end,
            stdout=self.own_end,
            stderr=self.own_end,
            start_new_session=True,
        )
        self.seen = b""

    def shows(self) -> bytes:
        while select.select([self.other_end], [], [], 0)[0]:
            try:
                self.seen += os.read(self.other_end, 65536)
            except OSError:
                break
        return self.seen

    def type(self, text: str) -> None:
        self.seen = b""
        os.write(self.other_end, text.encode())

    def wait_for(self, text: bytes) -> None:
        self.shell.until(lambda: text in self.shows())

    def ended(self) -> int:
        self.shell.until(lambda: self.shows() is not None and self.process.poll() is not None)
        self.shows()
        return self.process.returncode

    def at_work(self) -> bool:
        """Whether the run has trials at work."""
        self.shows()
        return self.shell.directory.database.exists() and bool(self.shell.events(TrialPhaseChanged))

    @property
    def cooked(self) -> bool:
        return bool(termios.tcgetattr(self.own_end)[3] & termios.ICANON)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.processes():
        process.kill()


@pytest.fixture
def begin(shell: Shell) -> Callable[..., Typed]:
    """Start a run in the app with these settings, until its trials are at work."""

    def started(*settings: str) -> Typed:
        names = {each.partition("=")[0] for each in settings}
        usual = [each for each in shell.settings() if each.partition("=")[0] not in names]
        typed = Typed(shell, *TBTUI, "run", *usual, *settings)
        shell.until(typed.at_work)
        typed.wait_for(b"quit")
        return typed

    return started


def child_of(typed: Typed) -> psutil.Process:
    """The process of the app and the run."""
    (child,) = psutil.Process(typed.process.pid).children()
    return child


@pytest.mark.slow
def test_d_gives_the_prompt_back_and_the_run_goes_on(shell: Shell) -> None:
    prompt = Typed(shell, "bash", "--norc", "--noprofile", "-i")
    prompt.wait_for(b"ready> ")
    # A hang-up would end it: what a person says goes before that.
    settings = " ".join(shell.settings("on_hangup=stop", "pace_sec=0"))
    prompt.type(f"{sys.executable} -m tbtui run {settings}\r")
    shell.until(prompt.at_work)
    prompt.wait_for(b"quit")
    prompt.type("q")
    prompt.wait_for(b"detach and keep it running")
    prompt.type("d")
    prompt.wait_for(b"ready> ")
    assert b"tbtui attach r\r\n" in prompt.seen
    for switched_off in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[<u", b"\x1b[?25h"):
        assert switched_off in prompt.seen
    prompt.type("echo status=$?; stty -a | grep -o ' icanon'; jobs\r")
    prompt.wait_for(b" icanon")
    assert b"status=0" in prompt.seen
    # It has nothing of the terminal any more, which can be closed.
    prompt.type("exit\r")
    assert prompt.ended() == 0
    os.close(prompt.own_end)
    os.close(prompt.other_end)
    steps = len(shell.events(StepFinished))
    shell.until(lambda: len(shell.events(StepFinished)) > steps + 1)
    log = shell.directory.log.read_text()
    assert log.count("a person has detached") == 1
    assert "the terminal has gone" not in log

    joined = Typed(shell, *TBTUI, "attach", "r")
    joined.wait_for(b"attached")

    def status() -> str:
        joined.shows()
        return str(shell.asked("run", "show")["status"])

    joined.type("P")
    shell.until(lambda: status() == "paused")
    joined.type("P")
    shell.until(lambda: status() != "paused")
    joined.type("q")
    assert joined.ended() == 0
    assert shell.asked("run", "stop", "r", "--reason", "enough", "--actor", "ada")["ok"]
    shell.until(lambda: not shell.processes())
    (finished,) = shell.events(RunFinished)
    assert (finished.status, finished.reason) == ("interrupted", "stopped by ada: enough")
    lines = shell.directory.output.read_text()
    assert "\nstep " in lines
    assert lines.endswith("interrupted: stopped by ada: enough\n")
    assert writer(shell.directory) is None


@pytest.mark.slow
def test_a_detached_run_reaches_its_end(shell: Shell, begin: Callable[..., Typed]) -> None:
    typed = begin("max_steps=2", "pace_sec=5")
    typed.type("q")
    typed.wait_for(b"detach and keep it running")
    typed.type("d")
    assert typed.ended() == 0
    assert not shell.events(RunFinished)
    shell.until(lambda: not shell.processes())
    assert [event.status for event in shell.events(RunFinished)] == ["finished"]
    assert "finished: 2 steps" in shell.directory.output.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its child"])
def test_a_signal_ends_the_run_cleanly_and_once(
    shell: Shell, begin: Callable[..., Typed], group: bool
) -> None:
    typed = begin()
    if group:
        os.killpg(typed.process.pid, signal.SIGTERM)
    else:
        typed.process.terminate()
    assert typed.ended() == 130
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted"]
    assert typed.cooked
    assert shell.processes() == []


@pytest.mark.slow
def test_ctrl_c_says_how_far_it_came_and_how_to_resume(
    shell: Shell, begin: Callable[..., Typed]
) -> None:
    typed = begin()
    typed.type("\x03")
    assert typed.ended() == 130
    assert b"run     r, step" in typed.seen
    assert b"tbtui run --resume r\r\n" in typed.seen
    assert typed.seen.rstrip().endswith(b"tbtui: everything is cleaned up")


@pytest.mark.slow
def test_whoever_kills_one_of_both_kills_the_other(
    shell: Shell, begin: Callable[..., Typed]
) -> None:
    typed = begin()
    typed.process.kill()
    shell.until(lambda: not shell.processes())
    assert shell.events(RunFinished) == []
    resumed = Typed(shell, *TBTUI, "run", "--resume", "r")
    resumed.wait_for(b"quit")
    assert not resumed.cooked
    child_of(resumed).kill()
    assert resumed.ended() == -signal.SIGKILL
    assert resumed.cooked
    assert b"\x1b[?1049l" in resumed.seen
    shell.until(lambda: not shell.processes())


@pytest.mark.slow
def test_a_shell_sees_it_stop_and_go_on(shell: Shell, begin: Callable[..., Typed]) -> None:
    typed = begin()
    waiting, child = psutil.Process(typed.process.pid), child_of(typed)
    child.send_signal(signal.SIGTSTP)
    shell.until(lambda: waiting.status() == psutil.STATUS_STOPPED)
    shell.until(lambda: b"\x1b[?1049l" in typed.shows() and typed.cooked)
    waiting.resume()
    shell.until(lambda: child.status() != psutil.STATUS_STOPPED)
    events = len(shell.events(TrialPhaseChanged))
    shell.until(lambda: typed.at_work() and len(shell.events(TrialPhaseChanged)) > events)
    typed.type("\x03")
    assert typed.ended() == 130


@pytest.mark.slow
def test_the_status_is_that_of_the_run(shell: Shell) -> None:
    model = ["policy=vllm", "model_name=m", "vllm_base_url=http://127.0.0.1:9/v1", "max_steps=0"]
    failing = Typed(shell, *TBTUI, "run", *shell.settings(*model)[:4], *model)
    failing.wait_for(b"has failed")
    failing.type("q")
    assert failing.ended() == 1
    assert b"tbtui: " in failing.seen
    refused = Typed(shell, *TBTUI, "run", f"tasks_dir={shell.where / 'nothing'}", "run_name=s")
    assert refused.ended() == 2
    assert b"nothing" in refused.seen
    assert refused.cooked
