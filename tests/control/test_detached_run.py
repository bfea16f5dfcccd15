"""`tbtui run --detach` through the real command: a run that outlives its terminal, or no run.

Each is a real run of real trials, so there are few of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tbtui.journal.events import AnyEvent, CommandIssued, RunFinished, TrialFinished
from tbtui.journal.rundir import RunDirectory, writer
from tbtui.resources import tasks_dir
from tests.events import events_of

PATIENCE_SEC = 90


class Shell:
    """Where one works: `tbtui ...` with a state and runs of its own."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.tasks = where / "tasks"
        self.directory = RunDirectory(where / "runs" / "r")
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(where / "state"),
            "TERM": "xterm-256color",
        }
        for name in ("mkdir-01", "remove-01", "mkdir-07"):
            shutil.copytree(tasks_dir() / "starter" / name, self.tasks / name)

    def tbtui(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tbtui", *arguments],
            cwd=self.where,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
        )

    def detach(self, *settings: str) -> subprocess.CompletedProcess[str]:
        return self.tbtui("run", "--detach", *self.settings(*settings))

    def settings(self, *more: str) -> list[str]:
        own = ["run_name=r", f"tasks_dir={self.tasks}", "batch_size=2", "group_size=2"]
        return [*own, "eval_tasks=mkdir-07", "max_steps=100", "save_every=0", *more]

    def asked(self, *arguments: str) -> Any:
        result = self.tbtui("ctl", *arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while not condition():
            assert time.monotonic() < deadline, self.directory.output.read_text()
            time.sleep(0.05)

    def processes(self) -> list[psutil.Process]:
        """The processes of all runs in this directory."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("XDG_STATE_HOME") == self.environment["XDG_STATE_HOME"]:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.processes():
        process.kill()


def test_what_is_refused_late_leaves_no_run(shell: Shell) -> None:
    """The process has divided by then: it is the other half that refuses."""
    empty = shell.where / "empty"
    empty.mkdir()
    result = shell.detach(f"tasks_dir={empty}", "--json")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tbtui: setting 'tasks_dir' is given twice")
    result = shell.tbtui("run", "--detach", "--json", f"tasks_dir={empty}", "run_name=r")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tbtui: no tasks in {empty}")
    assert not (shell.where / "runs").exists()
    assert shell.processes() == []


@pytest.mark.slow
def test_a_run_that_fails_before_it_has_begun_is_reported_as_such(shell: Shell) -> None:
    model = ["policy=vllm", "model_name=m", "vllm_base_url=http://127.0.0.1:9/v1", "max_steps=0"]
    result = shell.tbtui("run", "--detach", *model, "run_name=r", f"tasks_dir={shell.tasks}")
    assert result.returncode in (1, 2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "127.0.0.1:9" in result.stderr
    assert shell.processes() == []


@pytest.mark.slow
def test_it_outlives_its_terminal_and_is_steered_from_another(shell: Shell) -> None:
    # From a terminal that closes at once.
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", "run", "--detach", "--json", *shell.settings()],
        cwd=shell.where,
        env=shell.environment,
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=child,
        text=True,
        start_new_session=True,
    )
    out, _ = process.communicate(timeout=PATIENCE_SEC)
    os.close(child)
    os.close(parent)
    assert process.returncode == 0
    assert json.loads(out) == {
        "record": "launch",
        "run": "r",
        "pid": writer(shell.directory),
        "directory": str(shell.directory.path),
        "socket": str(shell.directory.control_socket),
    }
    (row,) = shell.asked("run", "list")["runs"]
    assert (row["run"], row["status"]) == ("r", "live")
    # A script pauses it, and each trial that runs ends its turn first.
    assert shell.asked("run", "pause", "--reason", "lunch", "--actor", "ada")["ok"]
    shell.until(lambda: shell.asked("run", "show")["waiting_for"] == "the run to be resumed")
    assert shell.asked("run", "resume")["ok"]
    shell.until(lambda: held_trials(shell))
    trial = held_trials(shell)[0]
    assert shell.asked("trial", "cancel", trial, "--reason", "enough")["ok"]
    ended = {e.trial: e.outcome for e in shell.events(TrialFinished)}
    assert ended[trial] == "cancelled"
    assert shell.asked("run", "stop", "r", "--reason", "too dear", "--actor", "ada")["ok"]
    (finished,) = shell.events(RunFinished)
    assert (finished.status, finished.reason) == ("interrupted", "stopped by ada: too dear")
    shell.until(lambda: not shell.processes())
    assert not shell.directory.control_socket.exists()
    text = shell.directory.output.read_text()
    assert "asked   ada: pause run (lunch)" in text
    assert text.endswith("interrupted: stopped by ada: too dear\n")


@pytest.mark.slow
def test_a_killed_one_leaves_nothing_in_the_way(shell: Shell) -> None:
    assert shell.detach().returncode == 0
    pid = writer(shell.directory)
    assert pid
    os.kill(pid, signal.SIGKILL)
    shell.until(lambda: writer(shell.directory) is None)
    assert shell.directory.control_socket.exists()
    assert shell.asked("run", "list")["runs"] == []
    assert shell.asked("run", "list", "--ended")["runs"][0]["status"] == "killed"
    result = shell.tbtui("ctl", "run", "pause", "r")
    assert result.returncode == 2
    assert "r is not live (killed): nothing to pause" in result.stderr
    shell.until(lambda: not shell.processes())
    result = shell.tbtui("run", "--detach", "--resume", "r")
    assert result.returncode == 0, result.stderr
    again = writer(shell.directory)
    assert again not in (None, pid)
    # A second one in the same place is refused, and the first one is not disturbed.
    result = shell.tbtui("run", "--detach", "--resume", "r")
    assert result.returncode == 2
    assert "this run is live" in result.stderr
    assert writer(shell.directory) == again
    assert shell.asked("run", "stop", "r")["ok"]


@pytest.mark.slow
def test_one_that_is_interrupted_before_it_has_begun_is_none(shell: Shell) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", "run", "--detach", *shell.settings()],
        cwd=shell.where,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    shell.until(lambda: shell.directory.output.exists())
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=PATIENCE_SEC)
    if process.returncode == 0:
        pytest.skip("it had begun already")
    assert (process.returncode, out) == (130, "")
    assert error == "tbtui: interrupted before the run had begun\n"
    shell.until(lambda: not shell.processes())


@pytest.mark.slow
def test_the_app_joins_it_in_a_terminal_and_leaves_it_running(shell: Shell) -> None:
    assert shell.detach().returncode == 0
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", "attach", "--name", "ada"],
        cwd=shell.where,
        env=shell.environment,
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    seen = b""

    def sees(text: bytes) -> bool:
        nonlocal seen
        while select.select([parent], [], [], 0)[0]:
            seen += os.read(parent, 65536)
        return text in seen

    shell.until(lambda: sees(b"attached"))
    shell.until(lambda: sees(b"step"))
    os.write(parent, b"P")
    shell.until(lambda: ("pause", "ada") in asked_of(shell))
    shell.until(lambda: sees(b"the run is paused"))
    os.write(parent, b"q")
    shell.until(lambda: sees(b"") and process.poll() is not None)
    assert process.returncode == 0
    assert shell.asked("run", "show")["status"] == "paused"
    os.close(child)
    os.close(parent)
    assert shell.asked("run", "stop", "r")["ok"]


def held_trials(shell: Shell) -> list[str]:
    """Trials that live in a pause; where the pause came between batches it is lifted again."""
    shell.asked("run", "pause")
    live = [t["trial"] for t in shell.asked("trial", "list")["trials"] if not t["outcome"]]
    if not live:
        shell.asked("run", "resume")
    return live


def asked_of(shell: Shell) -> list[tuple[str, str]]:
    return [(event.verb, event.actor) for event in shell.events(CommandIssued)]
