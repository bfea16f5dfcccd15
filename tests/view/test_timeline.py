"""What the run did when, by step; and what the sampler and the trainer did."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tbtui.journal.events import (
    AnyEvent,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    StepFinished,
    StepStarted,
    TrialPhase,
    TrialPhaseChanged,
)
from tbtui.view.fold import Fold
from tbtui.view.lanes import lanes
from tbtui.view.times import step_times
from tbtui.vocabulary import PUBLISHING
from tests.events import run_continued

from .story import entries, finished, one_step_run, queued, started


def folded(events: Iterator[AnyEvent] | list[AnyEvent]) -> Fold:
    fold = Fold()
    fold.apply_all(entries(events))
    return fold


def batch() -> Iterator[AnyEvent]:
    yield started()
    yield StepStarted(step=1, groups={"g": "copy-01"})
    yield RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)
    for name in ("t1", "t2", "t3", "t4"):
        yield queued(name)
    yield finished("t1", 1.0)
    yield finished("t2", 1.0)
    yield RunPaused()
    yield RunResumed()
    yield finished("t3", 1.0)


def ended() -> Iterator[AnyEvent]:
    yield from batch()
    yield finished("t4", 0.0)
    yield RunPhaseChanged(phase=RunPhase.TRAINING, step=0)
    yield StepFinished(step=1, weights_version=1, metrics={})
    yield RunPhaseChanged(phase=RunPhase.EVALUATING, step=1)


def test_the_last_quarter_of_a_batch_is_waited_for() -> None:
    fold = folded(batch())
    (_, step) = step_times(fold.state.timeline, fold.state.time + 5, 8)
    # One event a second: from the change of phase to the end of the third trial, a pause of one.
    assert step.seconds == {"sampling": 8.0, "waiting": 5.0, "paused": 1.0}
    assert step.live


def test_an_evaluation_belongs_to_the_step_before_it_and_nothing_is_left_out() -> None:
    fold = folded(ended())
    state = fold.state
    times = step_times(state.timeline, state.time + 3, 8)
    assert [(each.step, each.live) for each in times] == [(0, False), (1, True)]
    assert times[1].seconds["training"] == 2.0
    assert times[1].seconds["evaluating"] == 3.0
    for before, after in pairwise(state.timeline):
        assert before.until == after.since
    assert [each.step for each in step_times(state.timeline, state.time, 1)] == [1]


def test_a_step_is_not_trained_before_it_is_sampled() -> None:
    fold = folded(ended())
    fold.apply_all(
        entries(
            [
                StepStarted(step=2, groups={"h": "copy-01"}),
                RunPhaseChanged(phase=RunPhase.SAMPLING, step=1),
                queued("t5"),
                finished("t5", 1.0),
                RunPhaseChanged(phase=RunPhase.REVIEWING, step=1),
                RunPhaseChanged(phase=RunPhase.TRAINING, step=1),
                StepFinished(step=2, weights_version=2, metrics={}),
                StepStarted(step=3, groups={"i": "copy-01"}),
                RunPhaseChanged(phase=RunPhase.SAMPLING, step=2),
                queued("t6"),
            ],
            start=fold.state.time + 1,
        )
    )
    times = {each.step: each.seconds for each in step_times(fold.state.timeline, 0.0, 8)}
    assert set(times[3]) == {"sampling"}
    assert list(times[2]) == ["sampling", "reviewing", "training"]


def test_a_finished_run_stands_still() -> None:
    fold = folded(one_step_run())
    state = fold.state
    then = step_times(state.timeline, state.time, 8)
    assert then == step_times(state.timeline, state.time + 1000, 8)
    assert not any(each.live for each in then)
    assert step_times(Fold().state.timeline, 0.0, 8) == []


def test_the_time_between_two_processes_is_nobodys() -> None:
    fold = folded(batch())
    last = fold.state.time
    (entry,) = entries([run_continued()], start=last + 3600)
    fold.apply(entry)
    assert fold.state.timeline[-2].until == last
    assert fold.state.timeline[-1].since == entry.time
    fold = folded([*WORK[:4], run_continued()])
    assert lanes(fold.state.lanes, 1004.0, 1020.0, 4) == ()


WORK: list[AnyEvent] = [
    started(),
    RunPhaseChanged(phase=RunPhase.SAMPLING, step=0),
    queued("t1"),
    TrialPhaseChanged(trial="t1", phase=TrialPhase.MODEL),
    TrialPhaseChanged(trial="t1", phase=TrialPhase.ACTING),
    RunPhaseChanged(phase=RunPhase.TRAINING, step=0),
    RunPhaseChanged(phase=RunPhase.TRAINING, step=0, detail=PUBLISHING),
    RunPhaseChanged(phase=RunPhase.SAMPLING, step=1),
]


def test_idle_is_what_no_work_takes_and_publishing_is_not_training() -> None:
    # Sampling begins at 1002; 2 s more without an event.
    sampler, trainer = lanes(folded(WORK).state.lanes, 1002.0, 1010.0, 8)
    assert sampler.shares == pytest.approx({"sampling": 1 / 8})
    assert trainer.shares == pytest.approx({"training": 1 / 8, "publishing": 1 / 8})
    assert (sampler.idle, trainer.idle) == pytest.approx((7 / 8, 6 / 8))
    assert [cell and cell.work for cell in trainer.cells] == [
        *[None] * 4, "training", "publishing", None, None
    ]  # fmt: skip
