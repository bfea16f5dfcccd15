"""`tbtui run --detach` through the real command: a run that outlives its terminal, or no run."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess

import pytest

from tbtui.journal.events import CommandIssued, RunFinished, TrialFinished
from tbtui.journal.rundir import writer
from tests.terminal import PATIENCE_SEC

from .shell import TBTUI, Shell, Terminal

pytestmark = [pytest.mark.slow, pytest.mark.uid]


def test_what_is_refused_late_leaves_no_run(shell: Shell) -> None:
    """The process has divided by then: it is the other half that refuses."""
    empty = shell.where / "empty"
    empty.mkdir()
    result = shell.tbtui("run", "--detach", "--json", f"tasks_dir={empty}", "run_name=r")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tbtui: no tasks in {empty}")
    assert not (shell.where / "runs").exists()
    assert shell.processes() == []


def test_a_run_that_fails_before_it_has_begun_is_reported_as_such(shell: Shell) -> None:
    model = ["policy=vllm", "model_name=m", "vllm_base_url=http://127.0.0.1:9/v1", "max_steps=0"]
    result = shell.tbtui("run", "--detach", *model, "run_name=r", f"tasks_dir={shell.tasks}")
    assert result.returncode in (1, 2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "127.0.0.1:9" in result.stderr
    assert shell.processes() == []


def test_it_outlives_its_terminal_and_is_steered_from_another(shell: Shell) -> None:
    # From a terminal that closes at once.
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*TBTUI, "run", "--detach", "--json", *shell.settings()],
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
    # The app joins it, and leaves it as it is.
    joined = Terminal(shell, *TBTUI, "attach", "--name", "bob")
    joined.wait_for(b"attached")
    joined.wait_for(b"step")
    joined.type("P")
    shell.until(lambda: ("pause", "bob") in asked_of(shell))
    joined.wait_for(b"the run is paused")
    joined.type("q")
    assert joined.ended() == 0
    assert shell.asked("run", "show")["status"] == "paused"
    assert shell.asked("run", "resume")["ok"]
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


def test_one_that_is_interrupted_before_it_has_begun_is_none(shell: Shell) -> None:
    process = subprocess.Popen(
        [*TBTUI, "run", "--detach", *shell.settings()],
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


def held_trials(shell: Shell) -> list[str]:
    """Trials that live in a pause; where the pause came between batches it is lifted again."""
    shell.asked("run", "pause")
    live = [t["trial"] for t in shell.asked("trial", "list")["trials"] if not t["outcome"]]
    if not live:
        shell.asked("run", "resume")
    return live


def asked_of(shell: Shell) -> list[tuple[str, str]]:
    return [(event.verb, event.actor) for event in shell.events(CommandIssued)]
