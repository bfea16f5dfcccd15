"""Whole runs through the real command: real Harbor trials, real policy, real interruptions.

Each run imports Harbor, which takes seconds of CPU, so there are few of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tbtui.journal.events import (
    Outcome,
    RunFinished,
    RunStarted,
    StepFinished,
    TrialFinished,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialRetried,
    WorkerLost,
    WorkerStarted,
)
from tbtui.journal.reader import JournalReader
from tests.control.conftest import shell as shell
from tests.control.shell import TBTUI, Shell, Terminal
from tests.events import entries_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.uid, pytest.mark.linux]


class LiveRun:
    """A `tbtui run` in the background, of its own process group."""

    def __init__(self, shell: Shell, *arguments: str, out: Path | None = None) -> None:
        self._out = out or shell.where / "out"
        with self._out.open("w") as output:
            self.process = subprocess.Popen(
                [*TBTUI, "run", *shell.settings(*arguments)],
                cwd=shell.where,
                env=shell.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until(self, condition: Callable[[], object]) -> None:
        wait_until(lambda: condition() or self.process.poll() is not None, self.text)
        assert condition(), self.text()

    def ended(self) -> int:
        return self.process.wait(90)

    def text(self) -> str:
        return self._out.read_text()


def acting(shell: Shell) -> bool:
    working = (TrialPhase.MODEL, TrialPhase.ACTING)
    return any(event.phase in working for event in shell.events(TrialPhaseChanged))


def gone(shell: Shell, *, with_entries: bool = True) -> None:
    """No process of its runs is left, nor an entry in the ledger."""
    wait_until(lambda: not shell.processes())
    # What the app remembers of a person is to stay.
    entries = {path.name for path in (shell.where / "state").rglob("*.json")} - {"app.json"}
    assert not (with_entries and entries)


def test_a_run_trains_to_the_end(shell: Shell) -> None:
    run = LiveRun(shell, "--json", "max_steps=2", "eval_every=1")
    assert run.ended() == 0, run.text()
    printed = [json.loads(line) for line in run.text().splitlines()]
    assert printed[-1]["kind"] == "run_finished"
    assert printed[-1]["status"] == "finished"
    # What is printed is the journal, event for event.
    assert [e["seq"] for e in printed] == list(range(1, len(printed) + 1))
    assert [e["kind"] for e in printed] == [e.event.kind for e in entries_of(shell.directory)]
    assert [e.step for e in shell.events(StepFinished)] == [1, 2]
    ended = shell.events(TrialFinished)
    assert len(ended) == 2 * 4 + 3
    assert all(e.reward is not None for e in ended), ended
    (started,) = shell.events(RunStarted)
    assert started.settings["max_steps"] == 2

    # Every trial left Harbor's own files, a recording and its exact tokens.
    reader = JournalReader(shell.directory)
    for event in ended:
        where = shell.directory.trials / event.trial
        assert json.loads((where / "result.json").read_text())["trial_name"] == event.trial
        header, *output = (where / "recording.cast").read_text().splitlines()
        assert json.loads(header)["version"] == 2
        assert output
        assert len(reader.samples(event.trial)) >= 1
    assert (shell.directory.checkpoints / "step-000002").is_dir()
    gone(shell)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_cleans_up(shell: Shell, number: int) -> None:
    run = LiveRun(shell, "--no-ui")
    run.until(lambda: acting(shell))
    run.process.send_signal(number)
    assert run.ended() == 130, run.text()
    assert run.text().splitlines()[-1] == "interrupted: everything is cleaned up"
    queued = {e.trial for e in shell.events(TrialQueued)}
    assert {e.trial for e in shell.events(TrialFinished)} == queued
    gone(shell)


def test_an_interruption_is_heard_before_the_first_trial(shell: Shell) -> None:
    run = LiveRun(shell, "--no-ui")
    run.until(lambda: shell.directory.database.exists())
    run.process.send_signal(signal.SIGINT)
    assert run.ended() == 130, run.text()
    gone(shell)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_interrupted_before_it_has_begun_is_none(shell: Shell, number: int) -> None:
    run = LiveRun(shell, "--no-ui")
    run.until(lambda: "start" in run.text())  # the engine is imported next
    run.process.send_signal(number)
    assert run.ended() == 130, run.text()
    assert run.text().splitlines()[1:] == ["tbtui: interrupted before the run had begun"]
    assert not shell.directory.path.parent.exists()


def test_nor_is_one_before_the_app_is_there(shell: Shell) -> None:
    terminal = Terminal(shell, *TBTUI, "run", *shell.settings())
    shell.until(shell.directory.log.exists)  # the app is imported next
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ended() == 130, terminal.seen
    assert not shell.directory.path.parent.exists()


@pytest.mark.slow
def test_a_killed_worker_costs_its_trials_only(shell: Shell) -> None:
    run = LiveRun(shell, "--no-ui", "max_steps=3")
    run.until(lambda: acting(shell))
    os.kill(shell.events(WorkerStarted)[0].pid, signal.SIGKILL)
    assert run.ended() == 0, run.text()
    (lost,) = shell.events(WorkerLost)
    assert "SIGKILL" in lost.reason
    unscored = [e for e in shell.events(TrialFinished) if e.reward is None]
    assert {e.trial for e in unscored} == set(lost.trials)
    assert {e.outcome for e in unscored} <= {Outcome.SANDBOX_LOST}
    assert {e.trial for e in shell.events(TrialRetried)} == set(lost.trials)
    gone(shell)


@pytest.mark.slow
def test_nothing_outlives_a_killed_run(shell: Shell) -> None:
    run = LiveRun(shell, "--no-ui")
    run.until(lambda: acting(shell))
    run.process.kill()
    run.ended()
    gone(shell, with_entries=False)
    # What it could not write off itself, the next start does.
    successor = LiveRun(shell, "--no-ui", "max_steps=0", "run_name=s")
    assert successor.ended() == 0, successor.text()
    gone(shell)


@pytest.mark.slow
def test_a_terminal_that_takes_no_more_holds_nothing_up(shell: Shell) -> None:
    terminal = Terminal(shell, *TBTUI, "run", *shell.settings("max_steps=2"))
    # Nobody reads: it is full before the first frame has been painted.
    shell.until(lambda: shell.events(RunFinished))
    (end,) = shell.events(RunFinished)
    assert end.status == "finished"
    assert len(shell.events(StepFinished)) == 2
    terminal.wait_for(b"finished")
    terminal.type("q")
    assert terminal.ended() == 0
    gone(shell)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_holds_the_run_until_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "0"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256M", "small", disk], check=True)
    try:
        # Opened before the run, so that the disk can be filled whatever the run has used by then.
        with (disk / "filler").open("wb", buffering=0) as filler:
            shell = Shell(disk)
            run = LiveRun(shell, "--no-ui", out=tmp_path / "out")
            run.until(lambda: acting(shell))
            with contextlib.suppress(OSError):
                while filler.write(b"\0" * 65536) == 65536:
                    pass
        run.until(lambda: re.search(r"(is full|MB left).*free .* there", run.text()))
        steps = len(shell.events(StepFinished))
        (disk / "filler").unlink()
        run.until(lambda: len(shell.events(StepFinished)) > steps)
        run.process.send_signal(signal.SIGINT)
        assert run.ended() == 130, run.text()
        gone(shell, with_entries=False)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
