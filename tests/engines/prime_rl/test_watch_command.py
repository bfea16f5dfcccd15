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

from .hosted_run import HostedRun
from .recorded_run import RecordedRun


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tbtui", "prime-rl", "watch", *map(str, arguments)]


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False)


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    return RecordedRun(tmp_path / "out" / "tb")


@pytest.mark.slow
def test_a_whole_run_in_lines_and_again(run: RecordedRun, tmp_path: Path) -> None:
    run.whole()
    first = run_command(run.path, "--into", tmp_path / "journal")
    assert (first.returncode, first.stderr) == (0, "")
    lines = first.stdout.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 2
    assert lines[-1] == "finished: 2 steps"
    again = run_command(run.path, "--into", tmp_path / "journal")
    assert again.returncode == 0
    assert again.stdout.splitlines()[1:] == ["finished: the run was over when it was watched last"]


def test_the_plugins_trials_are_found(run: RecordedRun, tmp_path: Path) -> None:
    run.launch()
    trial = HostedRun(tmp_path / "trials", "a" * 32)
    trial.whole()
    recording = RunDirectory(tmp_path / "trials").recording(trial.name)
    recording.parent.mkdir(parents=True)
    recording.write_text("the terminal")
    into = tmp_path / "journal"
    options = ("--once", "--json", "--trials-dir", tmp_path / "trials", "--into", into)
    ended = run_command(run.path, *options)
    assert (ended.returncode, ended.stderr) == (0, "finished: read to the end of what is there\n")
    kinds = [json.loads(line)["kind"] for line in ended.stdout.splitlines()]
    assert kinds.count("trial_finished") == 1
    assert RunDirectory.open(into).recording(trial.name).read_text() == "the terminal"


def test_a_crashed_run_fails_with_its_reason_last(run: RecordedRun, tmp_path: Path) -> None:
    run.launch()
    run.ready()
    run.log("orchestrator", "ERROR", "Fatal error in run_orchestrator")
    run.raw("orchestrator", "RuntimeError: 10 consecutive empty train batches\n")
    ended = run_command(run.path, "--once", "--json", "--into", tmp_path / "journal")
    assert ended.returncode == 1
    last = json.loads(ended.stdout.splitlines()[-1])
    assert last["kind"] == "run_finished"
    assert last["reason"].endswith("RuntimeError: 10 consecutive empty train batches")


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
