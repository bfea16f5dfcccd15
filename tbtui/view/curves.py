"""What is followed from step to step, as points. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
    Signal("-log p", "optim/surprise", "mean of the sampled tokens, nats"),
    Signal("KL", "optim/kl_sample_train_v2", "sampler to trainer, nats a token"),
    Signal("stale", STALENESS, "steps between sampling and training", whole=True),
    Signal("entropy", "optim/entropy", "of the next token, nats"),
    Signal("grad norm", "optim/grad_norm", "of the step"),
)
"""In the order of what matters where room is short."""


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


def held_out_intervals(state: RunState) -> tuple[Points, ...]:
    """For each evaluation that has one, the ends of its 95% confidence interval."""
    return tuple(
        ((float(each.step), estimate.low), (float(each.step), estimate.high))
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
