"""What the rest of a run will take, by what it has taken so far. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from tbtui.journal.events import Estimate
from tbtui.view.state import EvalView, RunState, StepView

_LATEST_STEPS = 10
"""Finished steps that a forecast goes by, at most."""
_Z = 1.96
_POINT = 0.01

METRICS = {
    "dollars": "cost/total_usd",
    "hours": "progress/hours",
    "rollouts": "progress/rollouts",
}
"""What is spent -> the metric that counts it over the whole run."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will spend of one thing, and for what."""

    unit: str
    spent: float
    to_come: Estimate | None
    """Until the last step, evaluations included; with a 95% interval."""
    useful_group: float | None
    """For each group with a signal so far."""
    point: Estimate | None
    """For each point of held-out pass rate; `high` is infinite where the gain may be none."""


def forecasts(state: RunState) -> list[Forecast]:
    """One for each thing that is counted; none before the first step is finished."""
    return [found for unit in METRICS if (found := _forecast(unit, state)) is not None]


def _forecast(unit: str, state: RunState) -> Forecast | None:
    metric = METRICS[unit]
    steps = [step for step in state.steps if metric in step.metrics]
    if not steps:
        return None
    spent = max(steps[-1].metrics[metric], state.totals.get(metric, 0.0))
    useful = steps[-1].metrics.get("env/all/total_useful_groups")
    left = max(0, state.max_steps - state.step) if state.status is None else 0
    return Forecast(
        unit,
        spent,
        _to_come(metric, steps[-_LATEST_STEPS - 1 :], left) if left else None,
        spent / useful if useful else None,
        _per_point(metric, state.evals),
    )


def _to_come(metric: str, steps: Sequence[StepView], left: int) -> Estimate | None:
    """What so many steps will take, with what lies between them, if each takes what the latest
    ones did: the mean, and the interval of a sum of so many draws beside the mean's own."""
    totals = [step.metrics[metric] for step in steps]
    each = [now - before for before, now in pairwise(totals)]
    each = each or totals  # the first step alone
    mean = fmean(each)
    spread = stdev(each) if len(each) > 1 else mean
    half = _Z * spread * math.sqrt(left + left**2 / len(each))
    return Estimate(value=left * mean, low=max(0.0, left * mean - half), high=left * mean + half)


def _per_point(metric: str, evaluations: Sequence[EvalView]) -> Estimate | None:
    """What a point of pass rate has cost: the slope of a weighted least-squares line through the
    evaluations, each weighted by its own interval."""
    points = [
        (each.metrics[metric], rate.value, max(1e-3, (rate.high - rate.low) / (2 * _Z)))
        for each in evaluations
        if metric in each.metrics and (rate := each.pass_at.get(1)) is not None
    ]
    weights = [1 / deviation**2 for _, _, deviation in points]
    total = sum(weights)
    if len(points) < 2 or not total:
        return None
    centre = sum(w * x for w, (x, _, _) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - centre) ** 2 for w, (x, _, _) in zip(weights, points, strict=True))
    if not spread:
        return None
    slope = sum(w * (x - centre) * y for w, (x, y, _) in zip(weights, points, strict=True)) / spread
    low, high = slope - _Z / math.sqrt(spread), slope + _Z / math.sqrt(spread)
    if high <= 0 or slope <= 0:
        return None  # nothing was gained
    return Estimate(
        value=_POINT / slope, low=_POINT / high, high=_POINT / low if low > 0 else math.inf
    )


def amount(unit: str, value: float) -> str:
    """`$2.10`, `1.5 h`, `34 s`, `120 rollouts`."""
    if math.isinf(value):
        return "no end"
    match unit:
        case "dollars":
            return f"${value:,.2f}" if value >= 0.1 else f"${value:.2g}"
        case "hours":
            seconds = value * 3600
            if seconds < 99:
                return f"{seconds:.0f} s"
            return f"{value:.1f} h" if value >= 1 else f"{value * 60:.0f} min"
        case _:
            return f"{value:,.0f} {unit}"


def forecast_lines(state: RunState) -> list[str]:
    """For a person: a line for each thing that is spent.

    `hours: 10 min so far, 32 min (28 min to 36 min) to the end; 4 s a useful group, 40 s (30 s to
    2 min) a point of pass rate`.
    """
    lines = []
    for each in forecasts(state):
        parts = [f"{amount(each.unit, each.spent)} so far"]
        if each.to_come is not None:
            parts.append(f"{between(each.unit, each.to_come)} to the end")
        if each.useful_group is not None:
            parts.append(f"{amount(each.unit, each.useful_group)} a useful group")
        if each.point is not None:
            parts.append(f"{between(each.unit, each.point)} a point of held-out pass rate")
        lines.append(f"{each.unit}: {', '.join(parts)}")
    return lines


def between(unit: str, estimate: Estimate) -> str:
    """`32 min (28 min to 36 min)`; `864 rollouts` where nothing else is likely."""
    value = amount(unit, estimate.value)
    low, high = amount(unit, estimate.low), amount(unit, estimate.high)
    return value if low == high else f"{value} ({low} to {high})"
