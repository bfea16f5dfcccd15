"""What a step under review would be trained on, and each trial's share of the gradient. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tbtui.journal.events import Disposition, GroupUnderReview, Suspicion, TrialScore
from tbtui.view.current import places
from tbtui.view.groups import standard_deviation
from tbtui.view.state import ReviewView, RunState, TrialView


def signal(advantage: float | None, tokens: int, segments: int, normalizer: str) -> float:
    """Sum over a trial's action tokens of |w A|: how strongly it pulls at the weights.

    A is its advantage, w the weight that `loss_normalizer` gives a token (the table in
    `tbtui.algorithm.batch`): 1, or 1 / tokens of its segment, or 1 / tokens of its trial. The
    divisor of the batch is left out, which all trials have in common. The ratio of the trainer's
    probabilities to the sampler's is taken as 1, so that clipping is left out.
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


@dataclass(frozen=True, slots=True)
class ReviewedTrial:
    """A member of a group, or a fresh attempt that takes a member's place and still runs."""

    name: str
    trial: TrialView | None
    """None: it is no longer kept."""
    score: TrialScore | None
    """None: it is not over yet."""
    suspicions: tuple[Suspicion, ...]
    undecided: bool
    """The step waits for a decision upon it."""
    share: float | None
    """Share of the step's gradient, from 0 to 1; None: it has no part in training."""

    @property
    def label(self) -> str:
        return self.trial.label if self.trial is not None else self.name

    @property
    def advantage(self) -> float | None:
        return None if self.score is None else self.score.advantage


@dataclass(frozen=True, slots=True)
class ReviewedGroup:
    """One group of the step, as it would be trained on."""

    group: str
    task: str
    disposition: Disposition
    baseline: float | None
    trials: tuple[ReviewedTrial, ...]
    """In the order in which they were queued; a fresh attempt has the place of the one before."""

    @property
    def share(self) -> float:
        """Share of the step's gradient, from 0 to 1."""
        return sum(each.share or 0.0 for each in self.trials)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the rewards that count; None: fewer than two do."""
        return standard_deviation(self._rewards)

    @property
    def mean(self) -> float | None:
        """Mean of the rewards that count; None: there is none."""
        rewards = self._rewards
        return sum(rewards) / len(rewards) if rewards else None

    @property
    def _rewards(self) -> list[float]:
        counted = [each.score for each in self.trials if each.advantage is not None]
        return [score.reward for score in counted if score and score.reward is not None]

    @property
    def advantages(self) -> tuple[float, float] | None:
        """The smallest and the largest; None: nothing of it is trained on."""
        known = [each.advantage for each in self.trials if each.advantage is not None]
        return (min(known), max(known)) if known and self.disposition == "trained" else None

    @property
    def suspects(self) -> Counter[str]:
        """Suspect -> trials that have it."""
        return Counter(each.suspect for trial in self.trials for each in trial.suspicions)

    def missing(self, size: int) -> int:
        """How many members it lacks to have `size`: those that still run are not missing."""
        views = [each.trial for each in self.trials if each.trial is not None]
        kept = [t for t in views if t.live or (t.reward is not None and t.left_out is None)]
        return max(0, size - len(kept))

    @property
    def undecided(self) -> int:
        return sum(each.undecided for each in self.trials)


def reviewed_groups(review: ReviewView, state: RunState) -> list[ReviewedGroup]:
    """The groups of a review, in the order in which they are trained on."""
    normalizer = str(state.settings.get("loss_normalizer", "token"))
    signals = {
        name: signal(score.advantage, score.tokens, score.segments, normalizer)
        for group in review.groups
        if group.disposition == "trained"
        for name, score in group.trials.items()
        if score.advantage is not None
    }
    total = sum(signals.values())
    shares = {name: value / total if total else 0.0 for name, value in signals.items()}
    undecided = frozenset(review.undecided)
    return [_reviewed(group, state, shares, undecided) for group in review.groups]


def _reviewed(
    group: GroupUnderReview,
    state: RunState,
    shares: dict[str, float],
    undecided: frozenset[str],
) -> ReviewedGroup:
    view = state.groups.get(group.group)
    names = places([*(view.trials if view else ()), *group.trials], state.trials)
    trials = tuple(
        ReviewedTrial(
            name,
            state.trials.get(name),
            group.trials.get(name),
            group.suspects.get(name, ()),
            name in undecided,
            shares.get(name),
        )
        for name in names
        if name in state.trials or name in group.trials
    )
    return ReviewedGroup(group.group, group.task, group.disposition, group.baseline, trials)
