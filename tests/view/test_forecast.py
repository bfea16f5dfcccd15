"""What the rest of a run will take, by what it has taken."""

from __future__ import annotations

import math

import pytest

from tbtui.journal.events import (
    AnyEvent,
    Entry,
    Estimate,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
    TrialPaused,
    TrialPhaseChanged,
    TrialResumed,
)
from tbtui.view.fold import Fold
from tbtui.view.forecast import amount, forecast, forecast_lines, forecasts
from tbtui.view.state import Activity, EvalView, RunState, StepView, Stretch, TaskView
from tbtui.vocabulary import RunPhase, TrialPhase
from tests.events import eval_finished, run_started, trial_finished, trial_queued, turn_sampled


def run_of(steps: list[float], rates: list[tuple[float, float]], max_steps: int = 10) -> Fold:
    """A run whose steps have cost so much each, with evaluations at these costs."""
    total = 0.0
    events: list[AnyEvent] = [run_started(settings={"max_steps": max_steps})]
    for number, cost in enumerate(steps, 1):
        total += cost
        metrics = {
            "cost/total_usd": total,
            "progress/hours": total / 2,
            "progress/rollouts": 32.0 * number,
            "env/all/total_useful_groups": 2.0 * number,
        }
        events += [
            StepStarted(step=number, groups={}),
            StepFinished(step=number, weights_version=number, metrics=metrics),
        ]
    for at, rate in rates:
        estimate = Estimate(value=rate, low=rate - 0.05, high=rate + 0.05)
        events.append(
            eval_finished(
                len(steps),
                rate,
                weights_version=0,
                scored=100,
                pass_at={1: estimate},
                metrics={"cost/total_usd": at},
            )
        )
    fold = Fold()
    fold.apply_all(Entry(seq, 1000.0 + seq, event) for seq, event in enumerate(events, 1))
    return fold


def test_equal_steps_are_forecast_without_doubt() -> None:
    found = {each.unit: each for each in forecasts(run_of([0.5] * 4, []).state, 2000.0)}
    dollars = found["dollars"]
    assert dollars.spent == 2.0
    assert dollars.to_come is not None
    assert (dollars.to_come.value, dollars.to_come.low, dollars.to_come.high) == (3.0, 3.0, 3.0)
    assert dollars.useful_group == 0.25
    assert dollars.point is None
    assert found["rollouts"].useful_group == 16


def test_unequal_steps_have_an_interval() -> None:
    (dollars, *_) = forecasts(run_of([0.2, 0.8, 0.4, 0.6, 0.5], []).state, 2000.0)
    assert dollars.to_come is not None
    assert dollars.to_come.low < dollars.to_come.value < dollars.to_come.high
    assert dollars.to_come.low >= 0


def test_a_point_of_pass_rate_is_the_slope_of_the_evaluations() -> None:
    (dollars, *_) = forecasts(run_of([0.5] * 4, [(0, 0.2), (1, 0.4), (2, 0.6)]).state, 2000.0)
    assert dollars.point is not None
    # 0.2 of pass rate a dollar: 20 points.
    assert dollars.point.value == pytest.approx(0.05)
    assert dollars.point.low < 0.05 < dollars.point.high


def test_a_gain_that_may_be_none_has_no_upper_bound() -> None:
    (dollars, *_) = forecasts(run_of([0.5] * 4, [(0, 0.2), (2, 0.21)]).state, 2000.0)
    assert dollars.point is not None and math.isinf(dollars.point.high)
    (dollars, *_) = forecasts(run_of([0.5] * 4, [(0, 0.3), (2, 0.2)]).state, 2000.0)
    assert dollars.point is None


def test_before_the_first_step_nothing_is_forecast() -> None:
    assert forecasts(run_of([], []).state, 2000.0) == []


def test_in_words() -> None:
    lines = forecast_lines(run_of([0.5] * 4, [(0, 0.2), (1, 0.4), (2, 0.6)]).state)
    assert lines[0].startswith("dollars: $2.00 so far, $3.00 to come, $0.25 per")
    assert "per point of held-out pass rate" in lines[0]
    assert [amount("hours", hours) for hours in (0.01, 0.5, 2.0)] == ["36 s", "30 min", "2.0 h"]


# The time left, by its work


def run_at(*stretches: tuple[Activity, int, float], finished: int, of: int = 10) -> RunState:
    """Stretches one after another: activity, step, seconds; the last one goes on."""
    state = RunState(step=finished, settings={"max_steps": of, "eval_every": 4})
    at = 0.0
    for activity, step, seconds in stretches:
        state.timeline.append(Stretch(activity, step, at, at + seconds))
        at += seconds
    state.timeline[-1].until = None
    state.time = at
    for step in range(1, finished + 2):
        over = step <= finished
        state.steps.append(StepView(step, 0.0, finished_at=1.0 if over else None))
    return state


def left(state: RunState, later: float = 0.0) -> float | None:
    """Seconds to come."""
    found = forecast("hours", state, state.time + later)
    to_come = found.to_come if found is not None else None
    return None if to_come is None else to_come.value * 3600


def evaluations(state: RunState, *seconds: float | None) -> RunState:
    state.tasks["held"] = TaskView("held", "copy", None, "eval")
    state.evals += [EvalView(0, 1.0, 0.5, 4, 0, {}, 0.0, seconds=each) for each in seconds]
    return state


def test_before_the_first_step_has_finished_nothing_is_known() -> None:
    assert left(run_at(("sampling", 1, 9.0), finished=0)) is None


def test_steps_to_come_take_as_long_as_the_latest_ones() -> None:
    state = run_at(
        ("starting", 0, 30.0), ("evaluating", 0, 20.0),
        ("sampling", 1, 8.0), ("training", 1, 2.0),
        ("sampling", 2, 9.0), ("training", 2, 1.0),
        ("sampling", 3, 4.0),
        finished=2,
    )  # fmt: skip
    # 8 steps of 10 s, 4 s of the third one are over.
    assert left(state) == pytest.approx(76.0)
    # A step that takes longer than the others is expected to end, not to have ended.
    assert left(state, 60.0) == pytest.approx(70.0)
    found = forecast("hours", state, state.time)
    assert found is not None
    assert (found.left, found.left_between) == ("~1:20", "~1:20")


def test_rest_is_no_work_and_evaluations_are_those_that_are_planned() -> None:
    state = run_at(
        ("sampling", 1, 10.0), ("paused", 1, 500.0), ("training", 1, 1.0),
        ("sampling", 2, 10.0), ("reviewing", 2, 300.0), ("training", 2, 1.0),
        ("sampling", 3, 0.0),
        finished=2,
    )  # fmt: skip
    assert left(state) == pytest.approx(8 * 11.0)
    # After steps 4 and 8, and at the end.
    assert left(evaluations(state, 7.0, 9.0)) == pytest.approx(8 * 11.0 + 3 * 8.0)


def test_what_a_pace_slowed_down_says_nothing() -> None:
    state = run_at(("sampling", 1, 100.0), ("sampling", 2, 5.0), finished=1)
    state.timeline[0].paced = True
    assert left(evaluations(state, None)) is None
    state = run_at(("sampling", 1, 100.0), ("sampling", 2, 10.0), ("sampling", 3, 0.0), finished=2)
    state.timeline[0].paced = True
    state.steps[1].ended = 8
    # The evaluation was slowed down as well: its 4 trials take as long as 4 of the 8 of a step.
    assert left(evaluations(state, None)) == pytest.approx(8 * 10.0 + 3 * 5.0)


def test_the_last_evaluation_is_still_to_come() -> None:
    state = run_at(("sampling", 1, 9.0), ("evaluating", 1, 2.0), finished=1, of=1)
    state.phase = RunPhase.EVALUATING
    assert left(evaluations(state, 5.0)) == pytest.approx(3.0)


def test_one_slow_step_does_not_decide() -> None:
    steps = [("sampling", step, 100.0 if step == 1 else 10.0) for step in (1, 2, 3)]
    assert left(run_at(*steps, ("sampling", 4, 0.0), finished=3)) == pytest.approx(70.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"paused": True}, {"status": "finished"}, {"settings": {}}])
def test_a_run_that_rests_or_has_no_end_has_no_forecast(change: dict[str, object]) -> None:
    state = run_at(("sampling", 1, 10.0), ("sampling", 2, 0.0), finished=1)
    assert left(state) is not None
    for name, value in change.items():
        setattr(state, name, value)
    assert left(state) is None


def test_a_trial_that_a_person_holds_costs_the_run_no_time() -> None:
    """And the pace of the first step is no measure of the others."""
    fold, now = Fold(), 0.0

    def at(seconds: float, *events: AnyEvent) -> None:
        nonlocal now
        now += seconds
        fold.apply_all(Entry(fold.state.seq + 1, now, event) for event in events)

    at(1, run_started(settings={"max_steps": 4, "pace_sec": 2.0}))
    for step, held in ((1, 0.0), (2, 0.0), (3, 300.0)):
        trial = f"t{step}"
        at(0, StepStarted(step=step, groups={f"g{step}": "copy-01"}))
        at(0, RunPhaseChanged(phase=RunPhase.SAMPLING, step=step - 1))
        at(0, trial_queued(trial, step=step, group=f"g{step}"))
        at(1, TrialPhaseChanged(trial=trial, phase=TrialPhase.MODEL))
        at(4, turn_sampled(trial))
        at(40 if step == 1 else 0, TrialPhaseChanged(trial=trial, phase=TrialPhase.ACTING))
        at(0, TrialPaused(trial=trial))
        at(held, TrialResumed(trial=trial))
        at(5, trial_finished(trial, 1.0))
        at(0, StepFinished(step=step, weights_version=step, metrics={}))
        # Of 10 s each, but the first, which the pace had.
        assert left(fold.state) == (None if step == 1 else pytest.approx(10.0 * (4 - step)))
