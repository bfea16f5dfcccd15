"""A terminal that goes away under a real run: its other end is closed, as by a lost connection."""

from __future__ import annotations

import signal

import pytest

from tbtui.journal.events import RunFinished, StepFinished
from tbtui.journal.rundir import writer

from .shell import TBTUI, Shell, Terminal

pytestmark = [pytest.mark.slow, pytest.mark.uid]


def goes_on(shell: Shell, terminal: Terminal) -> None:
    """The terminal goes away, and the run goes on; a shell that ends says so once more."""
    for hang_up in (terminal.goes_away, lambda: terminal.process.send_signal(signal.SIGHUP)):
        hang_up()
        steps = len(shell.events(StepFinished))
        shell.until(lambda: len(shell.events(StepFinished)) > steps + 1)  # noqa: B023
    assert terminal.process.poll() is None
    said = shell.directory.log.read_text()
    assert f"tbtui attach {shell.directory.path}" in said
    assert said.count("the terminal has gone") == 1


def test_the_run_goes_on_and_can_be_joined_and_stopped(shell: Shell) -> None:
    terminal = Terminal.with_run(shell)
    goes_on(shell, terminal)
    joined = Terminal(shell, *TBTUI, "attach", "r", "--name", "ada")
    joined.wait_for(b"attached")

    def status() -> str:
        # An application whose terminal nobody reads waits for it, and for nothing else.
        joined.shows()
        return str(shell.asked("run", "show")["status"])

    joined.type("P")
    shell.until(lambda: status() == "paused" and b"paused" in joined.seen)
    joined.type("P")
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


def test_without_an_app_it_goes_on_until_a_signal_and_can_be_resumed(shell: Shell) -> None:
    terminal = Terminal.with_run(shell, "--no-ui")
    goes_on(shell, terminal)
    terminal.process.terminate()
    assert terminal.process.wait(60) == 130
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted"]
    shell.until(lambda: not shell.processes())
    steps = max(event.step for event in shell.events(StepFinished)) + 1
    result = shell.tbtui("run", "--no-ui", "--resume", "r", f"max_steps={steps}")
    assert result.returncode == 0, result.stderr
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted", "finished"]


@pytest.mark.parametrize("ui", ["app", "lines"])
def test_on_hangup_stop_ends_it(shell: Shell, ui: str) -> None:
    terminal = Terminal.with_run(shell, "on_hangup=stop", *(["--no-ui"] if ui == "lines" else []))
    terminal.goes_away()
    assert terminal.process.wait(60) == 130
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted"]
    shell.until(lambda: not shell.processes())
    assert "the terminal has gone" not in shell.directory.log.read_text()
