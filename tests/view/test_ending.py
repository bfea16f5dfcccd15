"""What is said when a run is left: how far it came, what it is worth, and what may come next."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tbtui.console import HumanLines
from tbtui.journal.events import (
    AnyEvent,
    BestCheckpoint,
    CheckpointSaved,
    Entry,
    Estimate,
    EvalFinished,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    TaskRecord,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.show_run import farewell
from tbtui.view.ending import name_to_type
from tbtui.view.fold import Fold
from tbtui.view.runs import summarise
from tests.events import eval_finished, run_continued, run_started, trial_finished, trial_queued

TASKS = (
    TaskRecord(name="copy-01", kind="copy", split="train"),
    TaskRecord(name="copy-02", kind="copy", split="eval"),
)


def evaluation(
    step: int, rate: float | None, scored: int = 4, unscored: int = 0, trials: int | None = None
) -> EvalFinished:
    return eval_finished(
        step,
        rate,
        scored=scored if trials is None else trials,
        unscored=unscored,
        by_task={f"t{number}": 0.0 for number in range(scored)},
        unscored_tasks=unscored,
        mean_reward=rate,
    )


def told(*events: AnyEvent, name: str = "r") -> list[str]:
    lines = HumanLines(name)
    entries = (Entry(seq, float(seq), event) for seq, event in enumerate(events, 1))
    return [line for entry in entries for line in lines.lines(entry)]


BEGUN = run_started(settings={"max_steps": 4}, tasks=TASKS)
COSTS = {"cost/step_usd": 0.64, "cost/total_usd": 0.64}
TRAINED = (
    BEGUN,
    evaluation(0, 0.25),
    StepFinished(
        step=3, weights_version=3, metrics={"time/sampling": 1, "time/training": 1, "time/total": 2}
    ),
    CheckpointSaved(step=3, weights_version=3, path="checkpoints/step-000003"),
    evaluation(3, 0.5),
    BestCheckpoint(step=3, path="checkpoints/step-000003", pass_rate=0.5),
)


def test_how_long_a_tinker_server_keeps_a_run_is_said() -> None:
    ended = RunFinished(status="interrupted", reason="")
    settings = {"max_steps": 4, "policy": "tinker", "checkpoint_ttl_hours": None}
    begun = run_started(settings=settings, tasks=TASKS)
    (kept,) = [each for each in told(begun, *TRAINED[1:], ended) if each.startswith("server ")]
    assert "until they are deleted" in kept and "charge" in kept
    begun = run_started(settings=settings | {"checkpoint_ttl_hours": 24}, tasks=TASKS)
    (until,) = [each for each in told(begun, *TRAINED[1:], ended) if each.startswith("server ")]
    saved = next(n for n, event in enumerate(TRAINED, 1) if isinstance(event, CheckpointSaved))
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved + 24 * 3600))
    assert f"on {day}: resume before" in until


def test_what_a_run_cost_has_its_last_evaluation_in_it() -> None:
    step = msgspec.structs.replace(TRAINED[2], metrics={**TRAINED[2].metrics, **COSTS})
    last = msgspec.structs.replace(evaluation(3, 0.5), metrics={"cost/total_usd": 0.68})
    lines = told(BEGUN, step, last, RunFinished(status="finished", reason="done"))
    assert any(each.startswith("step ") and "(so far $0.64)" in each for each in lines)
    assert any(each.startswith("end ") and each.endswith(", $0.68") for each in lines)


def test_a_run_that_ended_at_its_cost_goes_on_with_more() -> None:
    begun = run_started(settings={"max_steps": 4, "max_cost": 5.0}, tasks=TASKS)
    lines = told(begun, *TRAINED[1:], RunFinished(status="finished", reason="stopped"))
    assert "next    tbtui run --resume r max_cost=10" in lines


def test_a_run_that_ends_says_how_far_it_came_and_what_may_come_next() -> None:
    lines = told(*TRAINED, RunFinished(status="interrupted", reason="stopped by ada"))
    assert lines[-7:] == [
        "run     r, step 3 of 4",
        "rates   held-out pass rate 0.25 → 0.50",
        "best    checkpoints/step-000003: held-out pass rate 0.50",
        "next    tbtui run --resume r",
        "next    tbtui eval r",
        "next    tbtui replay r",
        "interrupted: stopped by ada",
    ]


def test_one_that_failed_before_any_step_can_be_resumed_and_not_evaluated() -> None:
    lines = told(BEGUN, RunFinished(status="failed", reason="no space left"))
    assert lines[-4:] == [
        "run     r, step 0 of 4",
        "next    tbtui run --resume r",
        "next    tbtui replay r",
        "failed: no space left",
    ]


def test_an_evaluation_names_its_weights_and_counts_its_trials() -> None:
    settings = {"max_steps": 0, "checkpoint": "/runs/p/checkpoints/step-000003"}
    lines = told(
        run_started(settings=settings, tasks=TASKS),
        trial_queued("a", purpose="eval", step=0),
        trial_finished("a", 1.0),
        trial_queued("b", purpose="eval", step=0),
        trial_finished("b", 0.0),
        evaluation(0, 0.5, trials=2),
        RunFinished(status="finished", reason="held-out pass rate 0.50"),
    )
    text = "\n".join(lines)
    assert "eval    step-000003 of p: held-out pass rate 0.50 of 2 trials" in text
    assert "end     2 held-out trials in " in text
    assert "rollouts" not in text
    assert "step 0" not in text


def test_an_evaluation_that_was_interrupted_can_be_gone_on_with() -> None:
    begun = run_started(settings={"max_steps": 0, "eval_group_size": 4}, tasks=TASKS)
    stopped = RunFinished(status="interrupted", reason="stopped by ada")
    lines = told(begun, stopped)
    assert lines[-3:-1] == ["next    tbtui run --resume r", "next    tbtui replay r"]
    whole = told(begun, evaluation(0, 0.5), RunFinished(status="finished", reason="done"))
    assert not any("--resume" in line for line in whole)
    # Of one trial, as `tasks try` runs it, nothing is left to go on with.
    single = told(run_started(settings={"max_steps": 0}, tasks=TASKS[-1:]), stopped)
    assert not any("--resume" in line for line in single)


def test_one_trial_has_a_reward_and_no_rate() -> None:
    only = evaluation(0, 1.0, scored=1)
    lines = told(run_started(settings={"max_steps": 0, "agent": "oracle"}, tasks=TASKS), only)
    assert lines[-1] == "eval    the tasks' own solutions: one trial, reward 1"


def test_a_rate_says_what_it_leaves_out() -> None:
    lines = told(BEGUN, evaluation(0, 0.0, 4, 7), evaluation(4, 0.5, 4, 7))
    assert (
        "held-out pass rate 0.00 of 4 trials, 7 unscored (of 4 of 11 tasks; 7 unscored)"
        in (lines[-2])
    )
    end = told(
        BEGUN,
        evaluation(0, 0.0, 4, 7),
        evaluation(4, 0.5, 11),
        RunFinished(status="finished", reason="x"),
    )
    assert "rates   held-out pass rate 0.00 of 4 of 11 tasks; 7 unscored → 0.50" in end
    nothing = told(BEGUN, evaluation(0, None, 0, 11), RunFinished(status="finished", reason="x"))
    assert "rates   held-out pass rate unscored (11 tasks)" in nothing


def starting(detail: str) -> RunPhaseChanged:
    return RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail=detail)


def test_the_time_in_which_it_was_dead_is_counted_nowhere(tmp_path: Path) -> None:
    # (second, event): killed at 12, gone on at 1000, which it says when its policy is loaded.
    story: list[tuple[float, AnyEvent]] = [
        (0, starting("loading the policy")),
        (2, BEGUN),
        (3, RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)),
        (12, evaluation(0, 0.5)),
        (1000, starting("loading the policy")),
        (1002, run_continued(settings={"max_steps": 4})),
        (1003, RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)),
        (1010, RunFinished(status="finished", reason="done")),
    ]
    entries = [Entry(seq, 5000 + at, event) for seq, (at, event) in enumerate(story, 1)]
    lines = HumanLines()
    assert "end     no trials in 22s" in [text for e in entries for text in lines.lines(e)]
    fold = Fold()
    fold.apply_all(entries)
    assert fold.state.seconds(6010) == 20  # it begins with RunStarted
    sampled = sum((s.until or 0) - s.since for s in fold.state.timeline if s.activity == "sampling")
    assert sampled == 9 + 7
    run = RunDirectory.create(tmp_path / "r")
    times = iter(entry.time for entry in entries)
    with JournalWriter(run, clock=lambda: next(times)) as writer:
        for entry in entries:
            writer.append(entry.event)
    assert summarise(run).seconds == 20


def test_a_policy_that_was_lost_is_no_time_without_a_process() -> None:
    fold = Fold()
    fold.apply_all(
        [
            Entry(1, 5000, BEGUN),
            Entry(2, 5010, starting("a new one in 5 s")),
            Entry(3, 5020, starting("loading the policy")),
            Entry(4, 5021, run_continued(pid=BEGUN.pid, settings={"max_steps": 4})),
        ]
    )
    assert fold.state.seconds(5030) == 30


def test_leaving_the_app_says_the_same_of_the_journal(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "runs" / "r")
    assert farewell(run, goes_on=False) == []
    with JournalWriter(run) as writer:
        for event in TRAINED:
            writer.append(event)
        assert farewell(run, goes_on=True)[-2:] == [
            f"attach  tbtui attach {run.path}",
            f"stop    tbtui ctl run stop {run.path}",
        ]
    lines = farewell(run, goes_on=True)
    assert lines[0] == "run     r, step 3 of 4"
    assert lines[-3] == f"next    tbtui run --resume {run.path}"


def test_a_run_in_the_usual_place_is_called_by_its_name(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "runs" / "r")
    assert name_to_type(run, tmp_path / "runs") == "r"
    assert name_to_type(run, tmp_path) == str(run.path)


@pytest.mark.parametrize(("tasks", "gained"), [(3, []), (12, ["b 0.00 → 1.00", "e 0.00 → 0.67"])])
def test_only_kinds_that_gained_beyond_chance_are_named(tasks: int, gained: list[str]) -> None:
    """With the number of trials; 0 of 3 and 2 of 3 may be the same rate."""
    solved = {"a": (1 / 3, 2 / 3), "b": (0, 1), "c": (1, 0), "e": (0, 2 / 3)}
    names = {kind: [f"{kind}-{number}" for number in range(tasks)] for kind in solved}
    held_out = tuple(
        TaskRecord(name=name, kind=kind, split="eval") for kind in names for name in names[kind]
    )

    def evaluated(event: EvalFinished, when: int, **changes: Any) -> EvalFinished:
        by_task = {
            name: float(place < solved[kind][when] * tasks)
            for kind in names
            for place, name in enumerate(names[kind])
        }
        return msgspec.structs.replace(event, by_task=by_task, **changes)

    begun = run_started(settings={"max_steps": 4}, tasks=held_out)
    rate = {1: Estimate(value=0.5, low=0.31, high=0.69)}
    after = evaluated(evaluation(3, 0.5), 1, pass_at=rate)
    ended = RunFinished(status="finished", reason="")
    lines = told(begun, evaluated(evaluation(0, 0.25), 0), TRAINED[2], after, ended)
    assert "rates   held-out pass rate 0.25 → 0.50 (0.31 to 0.69)" in lines
    said = [line.removeprefix("gained  ") for line in lines if line.startswith("gained")]
    assert said == ([", ".join(f"{each} (n {tasks})" for each in gained)] if gained else [])
