"""Two runs beside each other: only what both have done is compared."""

from __future__ import annotations

from pathlib import Path

from tbtui.commands.compare import document
from tbtui.journal.events import AnyEvent, StepFinished, TaskRecord
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.view.comparison import Comparison
from tbtui.view.reading import compare_runs
from tests.events import eval_finished, run_started, trial_finished, trial_queued

TASKS = (
    TaskRecord(name="copy-01", kind="copy", split="train"),
    TaskRecord(name="copy-09", kind="copy", split="eval"),
)


def run(where: Path, *steps: tuple[int, float, float], unscored: int = 0) -> RunDirectory:
    """A run with (step, reward of its training task, of its held-out task after it)."""
    directory = RunDirectory.create(where)
    with JournalWriter(directory) as writer:
        for event in story(steps, unscored):
            writer.append(event)
    return directory


def story(steps: tuple[tuple[int, float, float], ...], unscored: int) -> list[AnyEvent]:
    events: list[AnyEvent] = [run_started(tasks=TASKS, settings={"max_steps": 9})]
    for step, trained, held_out in steps:
        if step:
            trial = f"s{step}"
            events += [trial_queued(trial, step=step), trial_finished(trial, trained)]
            events.append(StepFinished(step=step, weights_version=step, metrics={}))
        trial = f"e{step}"
        queued = trial_queued(trial, task="copy-09", step=step, purpose="eval")
        events += [queued, trial_finished(trial, held_out)]
        events.append(
            eval_finished(
                step,
                held_out,
                scored=1,
                unscored=unscored,
                by_task={"copy-09": held_out},
                unscored_tasks=unscored,
            )
        )
    return events


def by_task(comparison: Comparison) -> dict[str, tuple[float | None, int, float | None, int]]:
    return {
        each.name: (each.first, each.first_trials, each.second, each.second_trials)
        for each in comparison.tasks
    }


def test_a_longer_run_is_compared_where_the_other_one_still_was(tmp_path: Path) -> None:
    same = ((0, 0.0, 0.0), (1, 0.0, 0.0), (2, 1.0, 1.0))
    longer = run(tmp_path / "longer", *same, (3, 1.0, 1.0), (4, 1.0, 1.0))
    shorter = run(tmp_path / "shorter", *same)
    comparison = compare_runs(longer, shorter)
    assert (comparison.common.held_out, comparison.common.trained) == (2, 2)
    assert by_task(comparison) == {"copy-01": (0.5, 2, 0.5, 2), "copy-09": (1.0, 1, 1.0, 1)}
    assert [each.change for each in comparison.tasks] == [0, 0]
    assert document(comparison)["common"] == {"held_out": 2, "trained": 2}


def test_runs_that_share_no_evaluation_say_so(tmp_path: Path) -> None:
    comparison = compare_runs(
        run(tmp_path / "a", (1, 1.0, 1.0)), run(tmp_path / "b", (2, 1.0, 1.0), unscored=7)
    )
    assert "no step was evaluated in both" in comparison.common.words
    assert "copy-09" not in by_task(comparison)
    assert comparison.second.coverage == {2: "of 1 of 8 tasks; 7 unscored"}
