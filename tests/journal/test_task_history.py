"""How tasks have gone, summed up from a journal."""

from __future__ import annotations

from pathlib import Path

from tbtui.journal.events import PhaseSeconds, TaskRecord, TrialRelabelled
from tbtui.journal.history import TaskHistory, read_history
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import run_started, trial_finished, trial_queued


def write(path: Path, agent: str = "terminus-2") -> RunDirectory:
    run = RunDirectory.create(path)
    writer = JournalWriter(run, lambda: 1_000.0)
    writer.append(
        run_started(
            run=run.name,
            tasks_dir="/tasks",
            tasks=(TaskRecord(name="a", split="train"),),
            settings={"agent": agent},
        )
    )
    for number, (task, reward) in enumerate([("a", 1.0), ("a", 0.5), ("a", None), ("b", 0.0)]):
        trial = f"t{number}"
        writer.append(trial_queued(trial, label=trial, task=task))
        writer.append(
            trial_finished(
                trial,
                reward,
                seconds=PhaseSeconds(queue=100, paused=50, setup=1, sampling=2 + number),
            )
        )
    # Still running.
    writer.append(trial_queued("t9", label="", task="b"))
    writer.close()
    return run


def test_trials_are_summed_up_by_task(tmp_path: Path) -> None:
    history = read_history(write(tmp_path / "r"))
    assert history is not None
    assert (history.started_at, history.tasks_dir) == (1_000.0, Path("/tasks"))
    assert history.tasks == (
        TaskHistory("a", trials=3, scored=2, reward_sum=1.5, solved=1, seconds=4.0),
        TaskHistory("b", trials=1, scored=1, reward_sum=0.0, solved=0, seconds=6.0),
    )


def test_rewards_are_those_in_force(tmp_path: Path) -> None:
    run = write(tmp_path / "r")
    with JournalWriter(run, continues=True) as journal:
        for trial, reward in (("t1", 1.0), ("t2", 1.0), ("t2", 0.25), ("t3", None)):
            journal.append(TrialRelabelled(trial=trial, reward=reward, before=0, reason="x"))
    history = read_history(run)
    assert history is not None
    assert [(each.task, each.scored, each.reward_sum, each.solved) for each in history.tasks] == [
        ("a", 3, 2.25, 2),
        ("b", 0, 0.0, 0),
    ]


def test_runs_of_solutions_say_nothing_of_a_policy(tmp_path: Path) -> None:
    assert read_history(write(tmp_path / "r", agent="oracle")) is None


def test_a_run_that_has_not_begun_has_no_history(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    JournalWriter(run).close()
    assert read_history(run) is None
