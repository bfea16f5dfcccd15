"""How much of a step's gradient is whose. Pure."""

from __future__ import annotations

from tbtui.view.state import RunState, TrialView


def signal(advantage: float | None, tokens: int, segments: int, normalizer: str) -> float:
    """Sum over a trial's action tokens of |w A|: how strongly it pulls at the weights.

    A is its advantage, w the weight that `loss_normalizer` gives a token (the table in
    `tbtui.algorithm.step`): 1, or 1 / tokens of its segment, or 1 / tokens of its trial. The
    divisor of the batch is left out, which all trials have in common. The ratio of the trainer's
    probabilities to the sampler's is taken as 1, so that what is clipped is not told apart.
    """
    if advantage is None or not tokens:
        return 0.0
    match normalizer:
        case "sequence":
            weight = float(segments)
        case "trial":
            weight = 1.0
        case _:
            weight = float(tokens)
    return abs(advantage) * weight


def gradient_share(trial: TrialView, state: RunState) -> float | None:
    """A trial's part of the signals of its step so far, from 0 to 1; None: it has no part."""
    step = state.step_view(trial.step)
    if trial.signal is None or step is None or trial.advantage is None:
        return None
    total = sum(step.signals.values())
    return trial.signal / total if total else 0.0


def group_share(group: str, state: RunState) -> float | None:
    """A group's part of the signals of its step so far; None: it is not scored."""
    view = state.groups.get(group)
    step = state.step_view(view.step) if view is not None else None
    if step is None or group not in step.signals:
        return None
    total = sum(step.signals.values())
    return step.signals[group] / total if total else 0.0
