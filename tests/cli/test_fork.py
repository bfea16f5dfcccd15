"""`tbtui fork`: what it refuses at once, and forks of a real run's trials."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tbtui.engines.grpo.forks import values_line
from tbtui.journal.events import (
    ForksStarted,
    RunFinished,
    StepFinished,
    TrialFinished,
    TrialQueued,
    TurnsValued,
)
from tbtui.journal.rundir import RunDirectory
from tests.by_hand.maze import maze_tasks
from tests.cli.process import tbtui
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
        (["--turn", "0"], "--turn 0: give a turn's number, from 1; or bisect, or all"),
        (["--turn", "first"], "--turn first: give a turn's number, from 1; or bisect, or all"),
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
    result = tbtui("fork", str(runs / "trunk"), trial_of(runs), *arguments)
    assert result.returncode == 2, result.stdout
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(runs.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trial", "reason"),
    [("copy-99/1", "copy-99/1: no such trial in trunk; write its label (copy-03/2)")],
)
def test_an_unknown_trial_is_refused_in_one_line(runs: Path, trial: str, reason: str) -> None:
    result = tbtui("fork", str(runs / "trunk"), trial, "--turn", "1")
    assert (result.returncode, result.stderr) == (2, f"tbtui: {reason}\n")


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
    )
    assert forked.returncode == 0, forked.stderr
    assert f"{trial}: won at turn {decisive}: " in forked.stdout, forked.stdout
    (valued,) = events_of(RunDirectory(tmp_path / "values"), TurnsValued)
    assert [each.turn for each in valued.values] == list(range(1, 10))
    for each in valued.values:
        assert each.passed <= 12 if each.turn <= decisive else each.passed >= 12


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_step_that_is_killed_while_turns_are_valued_comes_to_the_same(tmp_path: Path) -> None:
    """Values that were measured are not measured again, and none is lost."""
    settings = (
        f"logs_dir={tmp_path}", "tasks=copy-03,count-01", "eval_every=0", "batch_size=2",
        "group_size=4", "max_steps=1", "n_parallel_envs=1", "advantage=turn_value",
        "value_rollouts_per_step=16", "value_rollouts_per_turn=2",
    )  # fmt: skip
    whole, killed = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "killed")
    result = tbtui("run", "--no-ui", "run_name=whole", *settings)
    assert result.returncode == 0, result.stderr
    kill_and_resume(
        killed,
        ("run", "--no-ui", "run_name=killed", *settings),
        lambda: len(events_of(killed, TurnsValued)) >= 2,
    )

    def values(run: RunDirectory) -> dict[str, TurnsValued]:
        found = events_of(run, TurnsValued)
        assert len({each.parent for each in found}) == len(found)
        return {each.parent: each for each in found}

    assert values(killed) == values(whole)
    assert len(events_of(killed, ForksStarted)) == len(events_of(whole, ForksStarted))
    (one,), (other,) = events_of(whole, StepFinished), events_of(killed, StepFinished)
    for name in ("optim/loss", "optim/grad_norm", "value/trials", "tokens/trained"):
        assert one.metrics[name] == other.metrics[name], name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_step_that_is_killed_in_its_groups_of_forks_comes_to_the_same(tmp_path: Path) -> None:
    settings = (
        f"logs_dir={tmp_path}", "tasks=copy-03,count-01", "eval_every=0", "batch_size=2",
        "group_size=4", "max_steps=1", "n_parallel_envs=1", "group_from=fork",
    )  # fmt: skip
    whole, killed = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "killed")
    result = tbtui("run", "--no-ui", "run_name=whole", *settings)
    assert result.returncode == 0, result.stderr
    forks = [e.trial for e in events_of(whole, TrialQueued) if e.purpose == "fork"]
    assert forks
    kill_and_resume(
        killed,
        ("run", "--no-ui", "run_name=killed", *settings),
        lambda: any(event.trial == forks[1] for event in events_of(killed, TrialFinished)),
    )
    # Those of a step begin at once, and are journalled as they come.
    begun = [sorted(e.group for e in events_of(run, ForksStarted)) for run in (whole, killed)]
    assert begun[0] == begun[1]
    for one, other in zip(
        events_of(whole, StepFinished), events_of(killed, StepFinished), strict=True
    ):
        for name in ("optim/loss", "optim/grad_norm", "forks/groups", "tokens/trained"):
            assert one.metrics[name] == other.metrics[name], name
    shown = tbtui("whatif", str(whole.path))
    assert shown.returncode == 0, shown.stderr
