"""`tbtui prime-rl watch`, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.commands.prime_rl_watch import watch
from tbtui.journal.rundir import RunDirectory
from tests.events import entries_of

from .hosted_run import HostedRun
from .recorded_run import RecordedRun


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tbtui", "prime-rl", "watch", *map(str, arguments)]


def read_once(run: RecordedRun, into: Path, trials_dir: Path | None = None) -> int:
    """What `tbtui prime-rl watch --once --json` does; its exit status."""
    return watch(run.path, into, once=True, urls=(), stall=120, as_json=True, trials_dir=trials_dir)


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    return RecordedRun(tmp_path / "out" / "tb")


@pytest.mark.slow
def test_a_whole_run_in_lines_and_again(run: RecordedRun, tmp_path: Path) -> None:
    run.whole()
    again = command(run.path, "--into", tmp_path / "journal")
    first = subprocess.run(again, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    lines = first.stdout.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 2
    assert lines[-1] == "finished: 2 steps"
    second = subprocess.run(again, capture_output=True, text=True, check=True)
    assert second.stdout.splitlines()[1:] == ["finished: the run was over when it was watched last"]


def test_the_plugins_trials_are_found(
    run: RecordedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.launch()
    trial = HostedRun(tmp_path / "trials", "a" * 32)
    trial.whole()
    recording = RunDirectory(tmp_path / "trials").recording(trial.name)
    recording.parent.mkdir(parents=True)
    recording.write_text("the terminal")
    into = tmp_path / "journal"
    assert read_once(run, into, tmp_path / "trials") == 0
    said = capsys.readouterr()
    assert said.err == "finished: read to the end of what is there\n"
    kinds = [json.loads(line)["kind"] for line in said.out.splitlines()]
    assert kinds.count("trial_finished") == 1
    assert RunDirectory.open(into).recording(trial.name).read_text() == "the terminal"


@pytest.mark.slow
def test_ctrl_c_leaves_the_run_open(run: RecordedRun, tmp_path: Path) -> None:
    run.launch()
    watching = subprocess.Popen(
        command(run.path, "--into", tmp_path / "journal"), stdout=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    while not watching.stdout.readline().startswith("run"):
        pass
    watching.send_signal(signal.SIGINT)
    rest = watching.stdout.read().splitlines()
    assert watching.wait() == 130
    assert rest[-1] == "interrupted: the run goes on; watch it again to go on reading"
    kinds = [entry.event.kind for entry in entries_of(RunDirectory(tmp_path / "journal"))]
    assert "run_finished" not in kinds
    assert kinds[-1] == "noted"


def test_bad_input_is_one_clear_line(
    run: RecordedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.whole()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    refused = [
        (tmp_path / "missing", None, "no such directory"),
        (
            run.path.parent,
            None,
            "not a run of Prime-RL's (no configs, logs, metrics.jsonl); give one of its runs: tb",
        ),
        (run.path, run.path / "x", "lies in the watched directory"),
        (run.path, tmp_path / "other", "a run is already there"),
    ]
    for path, into, words in refused:
        assert watch(path, into, once=True, urls=(), stall=120, as_json=False) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line
