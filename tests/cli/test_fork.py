"""`tbtui fork`: what it refuses at once, and forks of a real run's trials."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tbtui.journal.events import ForksStarted, RunFinished, TrialFinished, TrialQueued, TurnsValued
from tbtui.journal.rundir import RunDirectory
from tbtui.view.sentences import values_line
from tests.by_hand.maze import maze_tasks
from tests.cli.process import invoke, tbtui
from tests.events import events_of

MAZES = {name: maze for name, _, maze in maze_tasks()}
SETTINGS = ("tasks=copy-03", "eval_tasks=copy-07", "batch_size=1", "group_size=2", "max_steps=1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of one step."""
    where = tmp_path_factory.mktemp("runs")
    result = tbtui(
        "run", "--no-ui", f"logs_dir={where}", "run_name=trunk", "eval_every=0", *SETTINGS
    )
    assert result.returncode == 0, result.stderr
    return where


def kill_and_resume(run: RunDirectory, command: Sequence[str], moment: Callable[[], bool]) -> None:
    """`tbtui` with these arguments, killed at a moment of its journal; the run is then resumed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not (run.database.exists() and moment()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = tbtui("run", "--no-ui", "--resume", str(run.path))
    assert again.returncode == 0, again.stderr


def trial_of(runs: Path) -> str:
    trials = (e for e in events_of(RunDirectory(runs / "trunk"), TrialQueued))
    return next(each.trial for each in trials if each.purpose == "train")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["copy-99/1", "--turn", "1"], "copy-99/1: no such trial in trunk; write its label (copy"),
        (["--turn", "0"], "--turn 0: give a turn's number, from 1; or bisect, or all"),
        (["--turn", "99"], "has no turn 99: it has turns 1 to "),
        (["--turn", "1", "-n", "0"], "-n 0: between 1 and 256"),
        (["--turn", "1", "--temperature", "0"], "--temperature 0: give more than 0"),
        (["--turn", "1", "--checkpoint", "7"], "7"),
        (["--turn", "1", "eval_tasks=copy-03"], "eval_tasks: tbtui fork sets it; leave it out"),
        (["--turn", "bisect", "max_steps=2"], "max_steps: an evaluation takes no training steps"),
    ],
)
@pytest.mark.slow
def test_bad_input_is_refused_in_one_line(runs: Path, arguments: list[str], reason: str) -> None:
    before = sorted(runs.iterdir())
    trial = [trial_of(runs)] if arguments[0].startswith("--") else []
    result = invoke("fork", str(runs / "trunk"), *trial, *arguments)
    assert result.exit_code == 2, result.stdout
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(runs.iterdir()) == before


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on_and_comes_to_the_same(runs: Path) -> None:
    """Nothing that ended is tried again, and no value is lost."""
    trial = trial_of(runs)
    command = ("fork", str(runs / "trunk"), trial, "--turn", "all", "-n", "4", "--no-ui")
    whole = tbtui(*command, "run_name=whole", "n_parallel_envs=1")
    assert whole.returncode == 0, whole.stderr
    assert "values of all" in whole.stderr
    (valued,) = events_of(RunDirectory(runs / "whole"), TurnsValued)
    assert [each.scored for each in valued.values] == [4] * valued.turns
    (finished,) = events_of(RunDirectory(runs / "whole"), RunFinished)
    assert finished.reason == values_line(valued)
    assert whole.stdout.rstrip().endswith(values_line(valued))

    killed = RunDirectory(runs / "killed")
    kill_and_resume(
        killed,
        (*command, "run_name=killed", "n_parallel_envs=1"),
        lambda: len(events_of(killed, ForksStarted)) == 2,
    )
    (resumed,) = events_of(killed, TurnsValued)
    assert resumed.values == valued.values
    assert len(events_of(killed, ForksStarted)) == len(
        events_of(RunDirectory(runs / "whole"), ForksStarted)
    )


@pytest.mark.slow
def test_a_maze_was_won_at_the_golden_door(tmp_path: Path) -> None:
    """Which turn decides is known there: one for a look around, then one for each room."""
    evaluated = tbtui(
        *("run", "--no-ui", "model_name=maze", "max_steps=0", "eval_group_size=2"),
        *(f"logs_dir={tmp_path}", "run_name=maze"),
    )
    assert evaluated.returncode == 0, evaluated.stderr
    trial = next(
        each.trial
        for each in events_of(RunDirectory(tmp_path / "maze"), TrialFinished)
        if each.outcome == "solved" and each.turns == 9
    )
    decisive = MAZES[trial.removeprefix("e0000-").rpartition("-")[0]].decisive + 2
    forked = tbtui(
        *("fork", str(tmp_path / "maze"), trial, "--turn", "all", "-n", "16", "--no-ui"),
        "run_name=values",
        timeout=250,  # 144 trials
    )
    assert forked.returncode == 0, forked.stderr
    assert f"{trial}: won at turn {decisive}: " in forked.stdout, forked.stdout
    (valued,) = events_of(RunDirectory(tmp_path / "values"), TurnsValued)
    assert [each.turn for each in valued.values] == list(range(1, 10))
    for each in valued.values:
        assert each.passed <= 12 if each.turn <= decisive else each.passed >= 12
