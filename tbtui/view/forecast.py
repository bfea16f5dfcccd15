"""What the rest of a run will take, by what it has taken so far: all forecasts. Pure.

Steps and evaluations to come are forecast each by those of their kind. Time is that of work: a
start, pauses of the run and of the trials that it waits for, reviews and whatever a pace slowed
down are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev

from tbtui.journal.events import Estimate
from tbtui.view.state import EvalView, RunState
from tbtui.view.times import time_left
from tbtui.vocabulary import RunPhase

_LATEST = 10
"""Finished steps, and evaluations, that a forecast goes by, at most."""
_Z = 1.96
_POINT = 0.01
_HOUR = 3600.0

METRICS = {
    "dollars": "cost/total_usd",
    "hours": "progress/hours",
    "rollouts": "progress/rollouts",
}
"""What is spent -> the metric that counts it over the whole run."""
_OF_EVALUATIONS = {"dollars": ("cost/total/eval_usd", "cost/eval_usd")}
"""What evaluations spend as well -> the metrics of what they have spent in all, and of one."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will spend of one thing, and for what."""

    unit: str
    spent: float
    """Hours: all in which the run was live."""
    to_come: Estimate | None
    """From now to the end, evaluations included; with a 95% interval. Hours of work; None while the
    run is paused, and before a step that no pace slowed down is finished."""
    useful_group: float | None
    """For each group with a signal so far; hours of work, in the latest steps."""
    point: Estimate | None
    """For each point of held-out pass rate; `high` is infinite where the gain may be none."""

    @property
    def total(self) -> Estimate | None:
        """By the end, with what is spent already."""
        each = self.to_come
        return each and Estimate(
            value=self.spent + each.value, low=self.spent + each.low, high=self.spent + each.high
        )

    @property
    def left(self) -> str:
        """What is to come, in words: `~12:00`, `$3.00`; empty where that is not known."""
        if self.to_come is None:
            return ""
        if self.unit == "hours":
            return time_left(self.to_come.value * _HOUR)
        return amount(self.unit, self.to_come.value)

    @property
    def left_between(self) -> str:
        """The same with its interval: `~12:00 (10:00 to 14:00)`."""
        if self.to_come is None:
            return ""
        if self.unit != "hours":
            return between(self.unit, self.to_come)
        low, high = (
            time_left(hours * _HOUR).removeprefix("~")
            for hours in (self.to_come.low, self.to_come.high)
        )
        return self.left if low == high else f"{self.left} ({low} to {high})"


def forecasts(state: RunState, now: float) -> list[Forecast]:
    """One for each thing that is counted; none before the first step is finished."""
    return [found for unit in METRICS if (found := forecast(unit, state, now)) is not None]


def forecast(unit: str, state: RunState, now: float) -> Forecast | None:
    """That of `dollars`, `hours` or `rollouts`; None: it isn't counted, or not yet."""
    metric = METRICS[unit]
    if unit == "hours":
        return _hours(state, now)
    last = next((step for step in reversed(state.steps) if metric in step.metrics), None)
    if last is None:
        return None
    spent = max(last.metrics[metric], state.totals.get(metric, 0.0))
    useful = last.metrics.get("env/all/total_useful_groups")
    return Forecast(
        unit,
        spent,
        _amount_to_come(unit, state),
        spent / useful if useful else None,
        _slope((each.metrics.get(metric), each) for each in state.evals),
    )


def _hours(state: RunState, now: float) -> Forecast | None:
    if all(step.finished_at is None for step in state.steps):
        return None
    spent = state.totals.get(METRICS["hours"], state.seconds(now) / _HOUR)
    work = _Work.of(state, now)
    point = _slope((each.worked_sec / _HOUR, each) for each in state.evals)
    return Forecast("hours", spent, work.to_come(state), work.useful_group(state), point)


def _to_come(state: RunState) -> tuple[int, int]:
    """Steps and evaluations that the run has before it; none of a run that has ended."""
    step, last, every = state.step, state.max_steps, state.settings.get("eval_every")
    if state.status is not None or step >= last:
        return 0, 0
    if all(task.split != "eval" for task in state.tasks.values()):
        return last - step, 0
    regular = last // every - step // every if every else 0
    return last - step, regular + bool(not every or last % every)


def _amount_to_come(unit: str, state: RunState) -> Estimate | None:
    left, evaluations = _to_come(state)
    if not left:
        return None
    metric, (of_evaluations, of_one) = METRICS[unit], _OF_EVALUATIONS.get(unit, ("", ""))
    totals = [
        step.metrics[metric] - step.metrics.get(of_evaluations, 0.0)
        for step in list(state.steps)[-_LATEST - 1 :]
        if metric in step.metrics
    ]
    each = [now - before for before, now in pairwise(totals)] or totals  # the first step alone
    paid = [each.metrics[of_one] for each in state.evals[-_LATEST:] if of_one in each.metrics]
    return _sum((left, fmean(each), each), *([(evaluations, fmean(paid), paid)] if paid else []))


def _sum(*parts: tuple[int, float, Sequence[float]], off: float = 0.0) -> Estimate:
    """The sum of so many draws around each centre, less `off`: with the interval of such a sum
    beside the centre's own, by the values that the centre is of."""
    value, variance = -off, 0.0
    for count, centre, known in parts:
        deviation = stdev(known) if len(known) > 1 else centre
        value += count * centre
        variance += deviation**2 * (count + count**2 / len(known))
    half = _Z * math.sqrt(variance)
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


@dataclass(frozen=True, slots=True)
class _Work:
    """Seconds of work, as far as they say how long such work takes."""

    steps: dict[int, float]
    """The latest finished ones."""
    under_way: float
    """Seconds of work of the step under way so far."""
    evaluating: float | None
    """Seconds of work of an evaluation under way so far; None: there is none."""

    @classmethod
    def of(cls, state: RunState, now: float) -> _Work:
        finished = [step.step for step in state.steps if step.finished_at is not None][-_LATEST:]
        work, under_way = dict.fromkeys(finished, 0.0), 0.0
        evaluating = 0.0 if state.phase is RunPhase.EVALUATING else None
        first, last = min(finished, default=math.inf), max(finished, default=math.inf)
        for stretch in reversed(state.timeline):
            if stretch.step < first:
                break  # the cost does not grow with the run
            if stretch.activity == "evaluating":
                if evaluating is not None and stretch.step == state.step:
                    evaluating += stretch.seconds(now)
            elif stretch.paced:
                work.pop(stretch.step, None)
            elif stretch.work and stretch.step in work:
                work[stretch.step] += stretch.seconds(now)
            elif stretch.work and stretch.step > last:
                under_way += stretch.seconds(now)
        return cls(work, under_way, evaluating)

    def to_come(self, state: RunState) -> Estimate | None:
        """Hours, from now on."""
        left, evaluations = _to_come(state)
        if not self.steps or state.paused or state.status is not None:
            return None
        # One slow step does not decide.
        step = median(self.steps.values())
        parts, off = [(left, step, list(self.steps.values()))], 0.0
        if left:
            # A step that takes longer than the others is expected to end, not to have ended.
            off = min(self.under_way, step)
        known = self._evaluations(state)
        if evaluations or self.evaluating is not None:
            each = fmean(known)
            evaluations += self.evaluating is not None
            parts.append((evaluations, each, known))
            off += min(self.evaluating or 0.0, each)
        if not left and not evaluations:
            return None
        seconds = _sum(*parts, off=off)
        return Estimate(
            value=seconds.value / _HOUR, low=seconds.low / _HOUR, high=seconds.high / _HOUR
        )

    def _evaluations(self, state: RunState) -> list[float]:
        """Seconds of the latest ones; where none is known, what as many trials of a step take."""
        known = [each.seconds for each in state.evals[-_LATEST:] if each.seconds is not None]
        if known:
            return known
        trials = sum(task.split == "eval" for task in state.tasks.values())
        if state.evals:
            trials = state.evals[-1].scored + state.evals[-1].unscored
        ended = {step.step: step.ended for step in state.steps if step.ended}
        each = [seconds / ended[step] for step, seconds in self.steps.items() if step in ended]
        return [trials * seconds for seconds in each] or list(self.steps.values())

    def useful_group(self, state: RunState) -> float | None:
        """Hours of the latest steps for each group of theirs with a signal."""
        useful = sum(
            step.metrics.get("env/all/useful_groups", 0.0)
            for step in state.steps
            if step.step in self.steps
        )
        return sum(self.steps.values()) / _HOUR / useful if useful else None


def _slope(evaluations: Iterable[tuple[float | None, EvalView]]) -> Estimate | None:
    """What a point of pass rate has cost: the slope of a weighted least-squares line through the
    evaluations with what was spent up to each, weighted by their own intervals."""
    points = [
        (spent, rate.value, max(1e-3, (rate.high - rate.low) / (2 * _Z)))
        for spent, each in evaluations
        if spent is not None and (rate := each.pass_at.get(1)) is not None
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
    """For a person, as of the last event: a line for each thing that is spent.

    `hours: 10 min so far, ~32:00 (28:00 to 36:00) left; 4 s per group with signal, 40 s (30 s to
    2 min) per point of held-out pass rate`.
    """
    lines = []
    for each in forecasts(state, state.time):
        parts = [f"{amount(each.unit, each.spent)} so far"]
        if each.left:
            ends = "left" if each.unit == "hours" else "to come"
            parts.append(f"{each.left_between} {ends}")
        if each.useful_group is not None:
            parts.append(f"{amount(each.unit, each.useful_group)} per group with signal")
        if each.point is not None:
            parts.append(f"{between(each.unit, each.point)} per point of held-out pass rate")
        lines.append(f"{each.unit}: {', '.join(parts)}")
    return lines


def between(unit: str, estimate: Estimate) -> str:
    """`32 min (28 min to 36 min)`; `864 rollouts` where nothing else is likely."""
    value = amount(unit, estimate.value)
    low, high = amount(unit, estimate.low), amount(unit, estimate.high)
    return value if low == high else f"{value} ({low} to {high})"
