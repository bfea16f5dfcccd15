"""From a step's rollouts to the data of its optimiser steps, read from top to bottom.

1. `score_groups`: rewards are shaped, and become advantages within their group (`advantages.py`);
   a rollout's model calls become segments (`segments.py`).
2. `trial_data`: a segment with its advantage and weights is a `Datum`.
3. `with_unknown`, `with_reference_kl`, `truncated_importance`: log-probabilities under other
   weights than the sampler's stand for those that it doesn't give, and change advantages and
   weights.
4. `divided`: weights are divided by the normaliser of the batch.

The gradient of what comes out is the policy's to compute, with a loss of `losses.py`.

A batch's loss is the sum of its tokens' losses, each weighted, divided by one number:

    normalizer   weight of a token             divisor of the batch
    token        1                             its action tokens (DAPO, Yu et al. 2025, arXiv
                                               2503.14476, section 3.3): long trials weigh more
    sequence     1 / tokens of its segment     its segments: each weighs the same (GRPO, Shao et
                                               al. 2024, arXiv 2402.03300, equation 3)
    trial        1 / tokens of its trial       its trials: each weighs the same, however often its
                                               history was rewritten
    sum          1                             1: the step grows with the batch, as with a loss
                                               of Tinker's, left undivided

The weight of a token depends on its own trial only, so data can be accumulated as trials finish,
and the gradient be divided once the whole batch is known.

Trials whose advantage is zero have no datum but count in the divisor: divided by the learning ones
alone, the few failures of an almost solved batch would move the policy as far as a batch full of
them, and late training would drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.advantages import GroupAdvantages, Method, advantages
from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.segments import Call, Segment, merge
from tbtui.vocabulary import Normalizer


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """Penalties in units of reward; zero switches one off."""

    overlong_penalty: float = 0.0
    """Subtracted from the reward of a trial whose longest context fills its limit."""
    overlong_buffer: int = 256
    """Tokens before the limit over which the penalty rises; at least 1."""
    turn_penalty: float = 0.0
    """Subtracted for each turn."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    normalizer: Normalizer = "token"
    remove_constant_reward_groups: bool = False
    """Trials of constant groups have no datum, and no part in the divisor either."""
    reference_kl: bool = False
    """A penalty for leaving the reference is going to be added to the advantages: trials whose
    own advantage is zero have data too."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every setting of the algorithm except the learning rate."""

    advantage: Method
    min_group: int
    rewards: RewardSettings
    context_limit: int
    """Tokens; what the overlong penalty is measured against."""
    train_summaries: bool
    train_abandoned: bool
    train_side_calls: bool
    train_handed_back: bool
    """Trials that people typed in are trained on from where they gave them back."""
    normalisation: BatchSettings
    loss: LossSettings
    kl_penalty_coef: float
    importance_cap: float
    """The cap of truncated importance sampling; 0: there is none."""
    substeps: int
    stream: bool
    grad_clip: float


class FinishedRollout(Protocol):
    """What the algorithm needs of a finished rollout."""

    @property
    def trial(self) -> str: ...

    @property
    def reward(self) -> float | None:
        """None: it has no part in its group."""
        ...

    @property
    def turns(self) -> int: ...

    @property
    def calls(self) -> tuple[Call, ...]: ...


# 1. Rewards and advantages


def longest_context(calls: Iterable[Call]) -> int:
    """Tokens of the call with the most, prompt and completion together; 0 without calls."""
    return max((len(call.prompt_ids) + len(call.completion_ids) for call in calls), default=0)


def shaped(reward: float, turns: int, tokens: int, limit: int, settings: RewardSettings) -> float:
    """The reward after the penalties.

    `tokens` is the trial's longest context and `limit` the most that the model takes. The length
    penalty is zero up to `limit - overlong_buffer` tokens, rises linearly from there, and is
    `overlong_penalty` at the limit and beyond: the soft overlong punishment of Yu et al. 2025
    (DAPO, arXiv 2503.14476, section 3.4, equation 13), there with a penalty of 1.
    """
    into_buffer = (tokens - (limit - settings.overlong_buffer)) / settings.overlong_buffer
    overlong = settings.overlong_penalty * min(1.0, max(0.0, into_buffer))
    return reward - overlong - settings.turn_penalty * turns


def shaped_reward(rollout: FinishedRollout, recipe: Recipe) -> float | None:
    """The reward of a rollout as training sees it; None: it has none."""
    if rollout.reward is None:
        return None
    return shaped(
        rollout.reward,
        rollout.turns,
        longest_context(rollout.calls),
        recipe.context_limit,
        recipe.rewards,
    )


@dataclass(frozen=True, slots=True)
class ScoredTrial:
    """A trial's segments, which share its advantage."""

    segments: tuple[Segment, ...]
    advantage: float
    constant: bool = False
    """The rewards of its group are all equal."""

    @property
    def action_tokens(self) -> int:
        return sum(segment.action_tokens for segment in self.segments)


@dataclass(frozen=True, slots=True)
class ScoredGroup[R: FinishedRollout]:
    """A group of G rollouts with their segments and advantages, in the same order."""

    rollouts: tuple[R, ...]
    segments: tuple[tuple[Segment, ...], ...]
    result: GroupAdvantages

    def trials(self) -> list[tuple[str, ScoredTrial]]:
        """(Trial, its segments and advantage) of the trials that have a part in training."""
        constant = self.result.disposition == "constant"
        return [
            (rollout.trial, ScoredTrial(segments, advantage, constant))
            for rollout, segments, advantage in zip(
                self.rollouts, self.segments, self.result.advantages, strict=True
            )
            if advantage is not None
        ]


def score_groups[R: FinishedRollout](
    groups: Sequence[Sequence[R]],
    recipe: Recipe,
    merged: Callable[[R], Sequence[Segment]] | None = None,
) -> list[ScoredGroup[R]]:
    """Advantages of whole groups; a trial without a reward has no part in its group.

    `merged`: gives a rollout's segments, for a caller that scores the same ones again and again.
    """
    if merged is None:
        merged = partial(_merged, recipe)
    rewards = [[shaped_reward(rollout, recipe) for rollout in group] for group in groups]
    results = advantages(rewards, recipe.advantage, recipe.min_group)
    return [
        ScoredGroup(tuple(group), tuple(tuple(merged(rollout)) for rollout in group), result)
        for group, result in zip(groups, results, strict=True)
    ]


def _merged(recipe: Recipe, rollout: FinishedRollout) -> Sequence[Segment]:
    return merge(
        rollout.calls, recipe.train_summaries, recipe.train_abandoned, recipe.train_side_calls
    )


def handed_back(
    rollouts: Sequence[tuple[float, Sequence[Call]]], recipe: Recipe
) -> list[ScoredTrial]:
    """The parts that the policy played after people had given trials of one group back.

    Their reward is not measured against the group's: a person has changed what they began from. So
    each is measured against the mean of the others that were given back, or against 0.5 where it
    is the only one. A baseline that doesn't depend on the trial's own tokens leaves the gradient
    unbiased (Williams 1992, section 4), of the reward from the state that the person left.

    Args:
        rollouts: (what it has earned, calls) of the group's trials that were given back.
    """
    total, others = sum(earned for earned, _ in rollouts), len(rollouts) - 1
    scored = []
    for earned, calls in rollouts:
        own = [replace(call, abandoned=not call.handed_back or call.abandoned) for call in calls]
        baseline = (total - earned) / others if others else 0.5
        segments = tuple(
            merge(own, recipe.train_summaries, train_side_calls=recipe.train_side_calls)
        )
        scored.append(ScoredTrial(segments, earned - baseline))
    return scored


# 2. Data


@dataclass(frozen=True, slots=True)
class Datum:
    """One training sequence of T tokens.

    `mask`, `logprobs`, `advantages` and `weights` have length T and speak of the token at the
    same index; where `mask` is False the others are ignored. `mask[0]` is always False: nothing
    precedes the first token. `weights` scales each token's loss and carries the normaliser chosen
    by the algorithm, so that a policy only ever sums.

    `logprobs` are the model's own, at temperature 1 and of all tokens, because the trainer's are.
    Trials may be drawn at another temperature, and without unlikely tokens: a token's probability
    is then divided by the mass that is left, which is no change of the policy. Compared with the
    trainer's, it would make a ratio that is biased before anything is learned, and clipped for
    what was asked for (huggingface/trl issues 4159 and 6789). So the ratio is that of the trained
    model to the sampler's model, 1 on-policy. Draws that are not the model's are off-policy all the
    same, and nothing corrects that. Others have the trainer repeat the sampler's temperature and
    truncation (PrimeIntellect-ai/prime-rl pull request 2601, NVIDIA-NeMo/RL 2053, the "keep
    sampling mask" of DeepSeek-V3.2): they train the policy that is drawn from, and not the model.
    """

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]


def trial_data(trial: ScoredTrial, settings: BatchSettings) -> list[Datum]:
    """A trial's data before the division by the batch's divisor: one for each segment that has
    action tokens."""
    removed = trial.constant and settings.remove_constant_reward_groups
    if removed or (trial.advantage == 0.0 and not settings.reference_kl):
        return []
    tokens = trial.action_tokens
    return [
        _datum(segment, trial.advantage, _weight(segment.action_tokens, tokens, settings))
        for segment in trial.segments
        if segment.action_tokens
    ]


def demonstration_data(
    demonstrations: Sequence[tuple[Sequence[int], Sequence[int]]], weight: float
) -> list[Datum]:
    """Data of (prompt, answer) in token ids, whose summed cross-entropy is `weight` times its mean
    over all tokens of the answers."""
    tokens = sum(len(answer) for _, answer in demonstrations)
    data = []
    for prompt, answer in demonstrations:
        mask = np.arange(len(prompt) + len(answer)) >= len(prompt)
        ones = mask.astype(np.float32)
        data.append(
            Datum(
                tokens=np.array([*prompt, *answer], np.int32),
                mask=mask,
                logprobs=np.zeros_like(ones),
                advantages=ones,
                weights=ones * np.float32(weight / tokens),
            )
        )
    return data


def divisor(trials: Sequence[ScoredTrial], settings: BatchSettings) -> float:
    """What the batch's summed loss is divided by; 1 where there is nothing to count."""
    counted = [
        trial for trial in trials if not (trial.constant and settings.remove_constant_reward_groups)
    ]
    match settings.normalizer:
        case "token":
            count = sum(trial.action_tokens for trial in counted)
        case "sequence":
            count = sum(
                segment.action_tokens > 0 for trial in counted for segment in trial.segments
            )
        case "trial":
            count = sum(trial.action_tokens > 0 for trial in counted)
        case "sum":
            count = 1
    return float(max(1, count))


def divided(data: Sequence[Datum], by: float) -> list[Datum]:
    """The same data with weights divided by a number."""
    factor = np.float32(1.0 / by)
    return [replace(datum, weights=datum.weights * factor) for datum in data]


def _weight(segment_tokens: int, trial_tokens: int, settings: BatchSettings) -> float:
    match settings.normalizer:
        case "token" | "sum":
            return 1.0
        case "sequence":
            return 1.0 / segment_tokens
        case "trial":
            return 1.0 / trial_tokens


def _datum(segment: Segment, advantage: float | npt.NDArray[np.float32], weight: float) -> Datum:
    """`advantage`: of each action token, in order, or of all of them."""
    mask = segment.mask.astype(np.float32)
    advantages = np.zeros(len(mask), np.float32)
    advantages[segment.mask] = advantage
    return Datum(
        tokens=segment.tokens,
        mask=segment.mask,
        logprobs=segment.logprobs,
        advantages=advantages,
        weights=mask * np.float32(weight),
    )


# 3. Log-probabilities of other weights: the penalty for leaving the reference compares with the
# sampler's, so it comes first; the correction of the sampler replaces them.

Logprobs = Sequence[npt.NDArray[np.float32]]
"""For each datum, log-probabilities (nats) of its masked tokens, in order of position."""


def has_unknown(data: Sequence[Datum]) -> bool:
    """Whether the sampler doesn't give the model's log-probability of some trained token."""
    return any(bool(np.isnan(datum.logprobs[datum.mask]).any()) for datum in data)


def with_unknown(data: Sequence[Datum], trainer: Logprobs) -> list[Datum]:
    """Data in which log-probabilities that the sampler doesn't give are the trainer's, of the
    weights before the optimiser step, as in verl, which recomputes them all: the ratio is 1 there,
    and says nothing of weights that are older, or of a sampler that computes otherwise."""
    known = []
    for datum, now in zip(data, trainer, strict=True):
        logprobs, own = datum.logprobs.copy(), datum.logprobs[datum.mask]
        logprobs[datum.mask] = np.where(np.isnan(own), now, own)
        known.append(replace(datum, logprobs=logprobs))
    return known


def reference_kl(data: Sequence[Datum], reference: Logprobs) -> float:
    """The mean over the data's trained tokens of sampled minus reference log-probability.

    An estimate of KL[sampler || reference], nats per token (estimator k1 of Schulman's note
    "Approximating KL Divergence", 2020); 0 without data.
    """
    gaps = _gaps(data, reference)
    return float(np.mean(np.concatenate(gaps))) if gaps else 0.0


def with_reference_kl(
    data: Sequence[Datum], reference: Logprobs, coefficient: float
) -> list[Datum]:
    """Data whose advantages also penalise leaving the reference policy.

    To a token's advantage is added `coefficient * (mean - gap)`, with gap its sampled minus its
    reference log-probability and `mean` that of all trained tokens handed in: the penalty of
    tinker-cookbook's `incorporate_kl_penalty`, undiscounted. The mean is a baseline: it makes the
    penalty sum to zero and lowers its variance. A streamed batch, whose mean is not known yet,
    may therefore hand in its groups one by one, each with the mean of its own tokens.
    """
    gaps = _gaps(data, reference)
    mean = np.mean(np.concatenate(gaps)) if gaps else 0.0
    penalised = []
    for datum, gap in zip(data, gaps, strict=True):
        advantages = datum.advantages.copy()
        advantages[datum.mask] += coefficient * (mean - gap)
        penalised.append(replace(datum, advantages=advantages))
    return penalised


def truncated_importance(data: Sequence[Datum], trainer: Logprobs, cap: float) -> list[Datum]:
    """Data that correct for a sampler whose log-probabilities are not quite the trainer's.

    `trainer` are those of the trained weights before the optimiser step. A token's weight is
    multiplied by `min(exp(trainer - sampler), cap)` and the loss then compares with the trainer's
    log-probabilities in place of the sampler's, so that clipping bounds the step alone and not
    the mismatch: truncated importance sampling, Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training".

    Raises:
        ValueError: the cap is not positive.
    """
    if cap <= 0:
        raise ValueError(f"the cap of importance weights must be positive, not {cap}")
    corrected = []
    for datum, now in zip(data, trainer, strict=True):
        logprobs, weights = datum.logprobs.copy(), datum.weights.copy()
        # The cap before the exponential: a large gap must not overflow.
        weights[datum.mask] *= np.exp(np.minimum(now - logprobs[datum.mask], math.log(cap)))
        logprobs[datum.mask] = now
        corrected.append(replace(datum, logprobs=logprobs, weights=weights))
    return corrected


def _gaps(data: Sequence[Datum], other: Logprobs) -> list[npt.NDArray[np.float64]]:
    return [
        datum.logprobs[datum.mask].astype(np.float64) - logprobs
        for datum, logprobs in zip(data, other, strict=True)
    ]
