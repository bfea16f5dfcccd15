"""What is followed from step to step, as points. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from tbtui.view.state import RunState

Points = tuple[tuple[float, float], ...]
"""Step and value, by step."""

STALENESS = "async/staleness_max"
"""Steps between the weights that drew a token and those that are trained on it, at most."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One of a step's metrics that says how training goes."""

    name: str
    metric: str
    meaning: str
    whole: bool = False
    """It counts something."""


SIGNALS = (
    Signal("-log p", "optim/neg_logprob", "mean of the sampled tokens, nats"),
    Signal("KL", "optim/kl_sample_train_v2", "sampler to trainer, nats a token"),
    Signal("stale", STALENESS, "steps between sampling and training", whole=True),
    Signal("entropy", "optim/entropy", "of the next token, nats"),
    Signal("grad norm", "optim/grad_norm", "of the step"),
)
"""In the order of what matters where room is short."""


_FENCE = 3.0
"""Interquartile ranges beyond the quartiles from where on a value is an outlier."""
_FEWEST = 8
"""Values of which none is called an outlier."""


def fences(values: Collection[float]) -> tuple[float, float]:
    """Beyond these a value is an outlier (Tukey's far out); infinite where that can't be said."""
    if len(values) < _FEWEST:
        return -inf, inf
    ordered = sorted(values)
    lower, upper = (ordered[round((len(ordered) - 1) * share)] for share in (0.25, 0.75))
    spread = (upper - lower) * _FENCE
    return (lower - spread, upper + spread) if spread > 0 else (-inf, inf)


def training_rates(state: RunState) -> Points:
    """Mean reward of each finished step."""
    return tuple(
        (float(step.step), step.mean_reward)
        for step in state.steps
        if step.mean_reward is not None and step.finished_at is not None
    )


def held_out_rates(state: RunState) -> Points:
    return tuple(
        (float(each.step), each.pass_rate) for each in state.evals if each.pass_rate is not None
    )


def held_out_intervals(state: RunState) -> tuple[tuple[float, float, float], ...]:
    """For each evaluation that has one: its step, and the ends of its 95% confidence interval."""
    return tuple(
        (float(each.step), estimate.low, estimate.high)
        for each in state.evals
        if (estimate := each.pass_at.get(1)) is not None
    )


def points(state: RunState, metric: str) -> Points:
    """A metric of the finished steps that have it."""
    return tuple(
        (float(step.step), step.metrics[metric]) for step in state.steps if metric in step.metrics
    )


def last_step(state: RunState) -> float:
    """Where the x axis ends."""
    done = max((step.step for step in state.steps), default=0)
    return float(max(1, state.max_steps, done))
