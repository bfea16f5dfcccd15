"""What the rest of a run will take, by what it has taken."""

from __future__ import annotations

import math

import pytest

from tbtui.journal.events import (
    AnyEvent,
    Entry,
    Estimate,
    EvalFinished,
    StepFinished,
    StepStarted,
)
from tbtui.view.fold import Fold
from tbtui.view.forecast import amount, forecast_lines, forecasts
from tests.events import run_started


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
            EvalFinished(
                step=len(steps),
                weights_version=0,
                temperature=1.0,
                pass_rate=rate,
                scored=100,
                unscored=0,
                by_kind={},
                pass_at={1: estimate},
                metrics={"cost/total_usd": at},
            )
        )
    fold = Fold()
    fold.apply_all(Entry(seq, 1000.0 + seq, event) for seq, event in enumerate(events, 1))
    return fold


def test_equal_steps_are_forecast_without_doubt() -> None:
    found = {each.unit: each for each in forecasts(run_of([0.5] * 4, []).state)}
    dollars = found["dollars"]
    assert dollars.spent == 2.0
    assert dollars.to_come is not None
    assert (dollars.to_come.value, dollars.to_come.low, dollars.to_come.high) == (3.0, 3.0, 3.0)
    assert dollars.useful_group == 0.25
    assert dollars.point is None
    assert found["rollouts"].useful_group == 16


def test_unequal_steps_have_an_interval() -> None:
    (dollars, *_) = forecasts(run_of([0.2, 0.8, 0.4, 0.6, 0.5], []).state)
    assert dollars.to_come is not None
    assert dollars.to_come.low < dollars.to_come.value < dollars.to_come.high
    assert dollars.to_come.low >= 0


def test_a_point_of_pass_rate_is_the_slope_of_the_evaluations() -> None:
    (dollars, *_) = forecasts(run_of([0.5] * 4, [(0, 0.2), (1, 0.4), (2, 0.6)]).state)
    assert dollars.point is not None
    # 0.2 of pass rate a dollar: 20 points.
    assert dollars.point.value == pytest.approx(0.05)
    assert dollars.point.low < 0.05 < dollars.point.high


def test_a_gain_that_may_be_none_has_no_upper_bound() -> None:
    (dollars, *_) = forecasts(run_of([0.5] * 4, [(0, 0.2), (2, 0.21)]).state)
    assert dollars.point is not None and math.isinf(dollars.point.high)
    (dollars, *_) = forecasts(run_of([0.5] * 4, [(0, 0.3), (2, 0.2)]).state)
    assert dollars.point is None


def test_before_the_first_step_nothing_is_forecast() -> None:
    assert forecasts(run_of([], []).state) == []


def test_in_words() -> None:
    lines = forecast_lines(run_of([0.5] * 4, [(0, 0.2), (1, 0.4), (2, 0.6)]).state)
    assert lines[0].startswith("dollars: $2.00 so far, $3.00 to the end, $0.25 a")
    assert "a point of held-out pass rate" in lines[0]
    assert [amount("hours", hours) for hours in (0.01, 0.5, 2.0)] == ["36 s", "30 min", "2.0 h"]
