"""Whole runs through the real command: real Harbor trials, real policy, real interruptions.

Each run imports Harbor, which takes seconds of CPU, so there are few of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tbtui.journal.events import (
    CommandIssued,
    Outcome,
    RunFinished,
    RunPaused,
    RunResumed,
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
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tests.events import events_of

PATIENCE_SEC = 90


@pytest.fixture(scope="module")
def few_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks to train on, two held out."""
    directory = tmp_path_factory.mktemp("tasks")
    for name in ("mkdir-01", "remove-01", "mkdir-07", "remove-07"):
        shutil.copytree(tasks_dir() / "starter" / name, directory / name)
    return directory


class LiveRun:
    """A `tbtui run` of its own process group, with its journal."""

    def __init__(
        self,
        where: Path,
        tasks: Path,
        *arguments: str,
        terminal: int | None = None,
        out: Path | None = None,
    ) -> None:
        self.directory = RunDirectory(where / "runs" / "r")
        self.state = where / "state"
        self.out = out or where / "out"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tbtui", "run", *arguments),
                *("run_name=r", f"logs_dir={where / 'runs'}", f"tasks_dir={tasks}"),
                *("batch_size=2", "group_size=2", "save_every=0"),
            ],
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=self.out.open("w") if terminal is None else terminal,
            stderr=subprocess.STDOUT if terminal is None else self.out.open("w"),
            env={**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": str(self.state)},
            start_new_session=True,
        )

    def events(self, kind: type[Any] = object) -> list[Any]:
        return events_of(self.directory, kind)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def acting(self) -> bool:
        phases = self.events(TrialPhaseChanged)
        return any(e.phase in (TrialPhase.MODEL, TrialPhase.ACTING) for e in phases)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SEC)

    def text(self) -> str:
        return self.out.read_text()

    def left_behind(self) -> list[str]:
        """Processes and ledger entries that should be gone."""
        mark = str(self.directory.path.parents[1])
        left = []
        for process in psutil.process_iter():
            try:
                if mark in process.environ().get("XDG_STATE_HOME", ""):
                    left.append(f"{process.pid} {' '.join(process.cmdline())}")
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        # What the app remembers of a person is to stay.
        entries = (path for path in self.state.rglob("*.json") if path.name != "app.json")
        return left + [str(path) for path in entries]


@pytest.fixture
def start(tmp_path: Path, few_tasks: Path) -> Iterator[Callable[..., LiveRun]]:
    runs: list[LiveRun] = []

    def start(*arguments: str, terminal: int | None = None) -> LiveRun:
        where = tmp_path / str(len(runs))
        where.mkdir()
        runs.append(LiveRun(where, few_tasks, *arguments, terminal=terminal))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()


def gone(run: LiveRun) -> None:
    """Nothing of the run is left, at the latest a few seconds after its end."""
    deadline = time.monotonic() + 15
    while left := run.left_behind():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_run_trains_to_the_end(start: Callable[..., LiveRun]) -> None:
    run = start("--json", "max_steps=2", "eval_every=1")
    assert run.wait() == 0, run.text()
    printed = [json.loads(line) for line in run.text().splitlines()]
    assert printed[-1]["kind"] == "run_finished"
    assert printed[-1]["status"] == "finished"
    # What is printed is the journal, event for event.
    assert [e["seq"] for e in printed] == list(range(1, len(printed) + 1))
    assert [e["kind"] for e in printed] == [e.kind for e in run.events()]
    assert [e.step for e in run.events(StepFinished)] == [1, 2]
    ended = run.events(TrialFinished)
    assert len(ended) == 2 * 4 + 3 * 2
    assert all(e.reward is not None for e in ended), ended
    (started,) = run.events(RunStarted)
    assert started.settings["max_steps"] == 2

    # Every trial left Harbor's own files, a recording and its exact tokens.
    reader = JournalReader(run.directory)
    for event in ended:
        where = run.directory.trials / event.trial
        assert json.loads((where / "result.json").read_text())["trial_name"] == event.trial
        header, *output = (where / "recording.cast").read_text().splitlines()
        assert json.loads(header)["version"] == 2
        assert output
        assert len(reader.samples(event.trial)) >= 1
    assert (run.directory.checkpoints / "step-000002").is_dir()
    gone(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_cleans_up(start: Callable[..., LiveRun], number: int) -> None:
    run = start("--no-ui")
    run.until(run.acting)
    run.process.send_signal(number)
    assert run.wait() == 130, run.text()
    assert run.text().splitlines()[-1] == "interrupted: everything is cleaned up"
    queued = {e.trial for e in run.events(TrialQueued)}
    assert {e.trial for e in run.events(TrialFinished)} == queued
    gone(run)


def test_an_interruption_is_heard_before_the_first_trial(start: Callable[..., LiveRun]) -> None:
    run = start("--no-ui")
    run.until(lambda: run.directory.database.exists())
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130, run.text()
    gone(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_interrupted_before_it_has_begun_is_none(
    start: Callable[..., LiveRun], number: int
) -> None:
    run = start("--no-ui")
    run.until(lambda: "start" in run.text())  # the engine is imported next
    run.process.send_signal(number)
    assert run.wait() == 130, run.text()
    assert run.text().splitlines()[1:] == ["tbtui: interrupted before the run had begun"]
    assert not run.directory.path.parent.exists()


def test_nor_is_one_before_the_app_is_there(start: Callable[..., LiveRun]) -> None:
    parent, child = pty.openpty()
    run = start(terminal=child)
    run.until(run.directory.log.exists)  # the app is imported next
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 130, run.text()
    assert not run.directory.path.parent.exists()
    os.close(parent)
    os.close(child)


@pytest.mark.slow
def test_a_killed_worker_costs_its_trials_only(start: Callable[..., LiveRun]) -> None:
    run = start("--no-ui", "max_steps=3")
    run.until(run.acting)
    os.kill(run.events(WorkerStarted)[0].pid, signal.SIGKILL)
    assert run.wait() == 0, run.text()
    (lost,) = run.events(WorkerLost)
    assert "SIGKILL" in lost.reason
    unscored = [e for e in run.events(TrialFinished) if e.reward is None]
    assert {e.trial for e in unscored} == set(lost.trials)
    assert {e.outcome for e in unscored} <= {Outcome.SANDBOX_LOST}
    assert {e.trial for e in run.events(TrialRetried)} == set(lost.trials)
    gone(run)


@pytest.mark.slow
def test_nothing_outlives_a_killed_run(start: Callable[..., LiveRun]) -> None:
    run = start("--no-ui")
    run.until(run.acting)
    run.process.kill()
    run.wait()
    gone_processes(run)
    # What it could not write off itself, the next start does.
    successor = start("--no-ui", "max_steps=0")
    assert successor.wait() == 0, successor.text()
    gone(successor)


def gone_processes(run: LiveRun) -> None:
    deadline = time.monotonic() + 15
    while left := [line for line in run.left_behind() if not line.endswith(".json")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_the_app_runs_the_same_engine(start: Callable[..., LiveRun]) -> None:
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    before = termios.tcgetattr(theirs)
    run = start(terminal=theirs)
    screen = Terminal(terminal)
    run.until(run.acting)
    os.write(terminal, b"P")
    run.until(lambda: run.events(RunPaused))
    # The key means whatever the screen shows, and the journal is ahead of the screen.
    while not run.events(RunResumed):
        assert run.process.poll() is None
        os.write(terminal, b"P")
        time.sleep(0.5)
    assert {e.verb for e in run.events(CommandIssued)} == {"pause", "resume"}
    os.write(terminal, b"q")
    screen.until("Stop the run and clean up?")
    os.write(terminal, b"y")
    assert run.wait() == 130
    assert termios.tcgetattr(theirs) == before
    (end,) = run.events(RunFinished)
    assert end.status == "interrupted"
    gone(run)


@pytest.mark.slow
def test_a_terminated_app_cleans_up_too(start: Callable[..., LiveRun]) -> None:
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    before = termios.tcgetattr(theirs)
    run = start(terminal=theirs)
    Terminal(terminal)
    run.until(run.acting)
    run.process.terminate()
    assert run.wait() == 130
    assert termios.tcgetattr(theirs) == before
    gone(run)


@pytest.mark.slow
def test_a_terminal_that_takes_no_more_holds_nothing_up(start: Callable[..., LiveRun]) -> None:
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 220, 0, 0))
    run = start("max_steps=2", terminal=theirs)
    # Nobody reads: it is full before the first frame has been painted.
    run.until(lambda: run.events(RunFinished))
    (end,) = run.events(RunFinished)
    assert end.status == "finished"
    assert len(run.events(StepFinished)) == 2
    screen = Terminal(terminal)
    screen.until("finished")
    os.write(terminal, b"q")
    assert run.wait() == 0
    gone(run)


class Terminal:
    """Reads what the app paints, so that it never waits for us."""

    def __init__(self, end: int) -> None:
        self._painted = bytearray()
        self._end = end
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._end, 65536):
                self._painted += chunk
        except OSError:
            pass

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        # Words may be painted apart, with escapes between them.
        words = text.split()
        while not all(word.encode() in self._painted for word in words):
            assert time.monotonic() < deadline, bytes(self._painted[-2000:])
            time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_holds_the_run_until_there_is_room(tmp_path: Path, few_tasks: Path) -> None:
    disk = tmp_path / "0"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256M", "small", disk], check=True)
    try:
        # Opened before the run, so that the disk can be filled whatever the run has used by then.
        with (disk / "filler").open("wb", buffering=0) as filler:
            run = LiveRun(disk, few_tasks, "--no-ui", out=tmp_path / "out")
            run.until(run.acting)
            with contextlib.suppress(OSError):
                while filler.write(b"\0" * 65536) == 65536:
                    pass
        run.until(lambda: re.search(r"(is full|MB left).*free .* there", run.text()))
        steps = len(run.events(StepFinished))
        (disk / "filler").unlink()
        run.until(lambda: len(run.events(StepFinished)) > steps)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.text()
        gone_processes(run)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
