"""`tbtui bisect` over the checkpoints of a real run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tbtui.journal.events import TrialFinished, TrialQueued
from tbtui.journal.rundir import RunDirectory
from tests.cli.process import invoke, tbtui
from tests.events import events_of

pytestmark = pytest.mark.slow
TRIALS = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with a checkpoint after each of five steps, which learns to copy."""
    where = tmp_path_factory.mktemp("runs")
    result = tbtui(
        "run", "--no-ui", f"logs_dir={where}", "run_name=trunk", "tasks=copy-03,copy-01",
        "eval_tasks=copy-07", "batch_size=2", "group_size=8", "max_steps=5", "save_every=1",
        "keep_checkpoints=9", "eval_every=0",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return where


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nosuch", "copy-07"], "nosuch: no such run"),
        (["RUN", "copy-99"], "eval_tasks: no task 'copy-99'"),
        (["RUN", "copy-07", "-n", "0"], "-n 0: between 1 and 1024"),
        (["RUN", "copy-07", "eval_group_size=3"], "eval_group_size: tbtui bisect sets it"),
        (["RUN", "copy-07", "max_steps=3"], "max_steps: an evaluation takes no training steps"),
        (["RUN", "copy-07", "nosuch=3"], "unknown setting 'nosuch'"),
    ],
)
def test_bad_input_is_refused_in_one_line(runs: Path, arguments: list[str], reason: str) -> None:
    before = sorted(runs.iterdir())
    given = [str(runs / "trunk") if each == "RUN" else each for each in arguments]
    result = invoke("bisect", *given)
    assert result.exit_code == 2, result.stderr
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(runs.iterdir()) == before


def test_a_run_of_one_checkpoint_is_refused(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "bare").database.touch()
    result = invoke("bisect", str(tmp_path / "bare"), "copy-07")
    assert result.exit_code == 2
    assert "bare has 0 checkpoints, and a bisection needs two" in result.stderr


def test_killed_it_goes_on_and_asked_again_it_tries_nothing(runs: Path) -> None:
    command = ("bisect", str(runs / "trunk"), "copy-07", "-n", str(TRIALS))
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", *command], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def begun() -> list[RunDirectory]:
        return [RunDirectory(path.parent) for path in runs.glob("bisect-*/run.db")]

    while not (begun() and events_of(begun()[0], TrialFinished)):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result = tbtui(*command)
    assert result.returncode == 0, result.stderr
    *rows, last = result.stdout.splitlines()
    assert rows[0].startswith("step 0 ")
    assert rows[1].startswith("step 5 ")
    tried = len(begun())
    assert tried == len(rows) <= 5
    for run in begun():
        ends = events_of(run, TrialFinished)
        assert len([e for e in ends if e.reward is not None]) == TRIALS
        assert len({e.label for e in events_of(run, TrialQueued)}) == TRIALS

    again = tbtui(*command, "--json")
    found = json.loads(again.stdout)
    assert len(begun()) == tried
    assert [row["scored"] for row in found["checkpoints"]] == [TRIALS] * tried
    if (turned := found["turning_point"]) is None:
        assert last == "copy-07: no change between step 0 and step 5"
    else:
        passed = {row["step"]: row["passed"] for row in found["checkpoints"]}
        what = "won" if passed[turned["to"]] > passed[turned["from"]] else "lost"
        between = f"between step {turned['from']} and step {turned['to']}: "
        assert last.startswith(f"copy-07 was {what} {between}")
