"""One step's surrogate loss under other settings, from what was recorded of it.

What depends on the rollouts alone (advantages, weights) is exact. What depends on the ratio of the
trainer's probabilities to the sampler's is known only where the trainer's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.advantages import GroupAdvantages, Method, advantages
from tbtui.algorithm.losses import LossSettings, clipped_tokens, policy_loss
from tbtui.algorithm.segments import Call, Segment, merge
from tbtui.algorithm.step import (
    BatchSettings,
    Datum,
    ScoredTrial,
    divided,
    divisor,
    trial_data,
)
from tbtui.vocabulary import Normalizer


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What turns a step's rollouts into a loss."""

    advantage: Method = "centred"
    normalizer: Normalizer = "token"
    loss: LossSettings = field(default_factory=LossSettings)
    min_group: int = 2
    remove_constant_reward_groups: bool = False
    train_summaries: bool = True
    train_abandoned: bool = False
    train_side_calls: bool = False

    def merged(self, calls: Iterable[Call]) -> list[Segment]:
        return merge(calls, self.train_summaries, self.train_abandoned, self.train_side_calls)


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """A trial as it was trained on. `reward` None: it has no part in its group."""

    reward: float | None
    calls: tuple[Call, ...]
    trainer_logprobs: tuple[npt.NDArray[np.float32], ...] | None
    """For each call, its tokens' log-probabilities (nats) under the weights that its gradient was
    taken at; None: unknown."""


@dataclass(frozen=True, slots=True)
class TrialEffect:
    """One trial's contribution to the step's gradient."""

    advantage: float | None
    tokens: int
    """Action tokens."""
    trained: int
    """Those that the loss has a term for: all or none."""
    signal: float
    """Sum over its tokens of the absolute derivative of the batch's loss by the token's
    log-probability: |w A| / divisor at a ratio of 1, which is assumed where it is unknown."""
    share: float
    """Its part of the signals of all trials; 0 where there is none."""
    clip_fraction: float | None
    """Share of its trained tokens whose gradient clipping changed; None: unknown."""


@dataclass(frozen=True, slots=True)
class StepEffect:
    groups: tuple[tuple[TrialEffect, ...], ...]
    divisor: float
    signal: float
    """Sum over the trials."""
    clip_fraction: float | None
    """Over all trained tokens; None: unknown for some of them."""
    learning: int
    """Trials that the loss has a term for."""


def recomputed(
    groups: Sequence[Sequence[RecordedTrial]], settings: StepSettings
) -> list[GroupAdvantages]:
    """Each group's advantages under the settings."""
    rewards = [[trial.reward for trial in group] for group in groups]
    return advantages(rewards, settings.advantage, settings.min_group)


def step_effect(
    groups: Sequence[Sequence[RecordedTrial]],
    results: Sequence[GroupAdvantages],
    settings: StepSettings,
) -> StepEffect:
    """The effect of each trial of a step, with the advantages in `results` (one for each group,
    `recomputed` or as they were recorded)."""
    batch = BatchSettings(settings.normalizer, settings.remove_constant_reward_groups)
    scored = [
        [
            ScoredTrial(
                tuple(
                    merge(
                        trial.calls,
                        settings.train_summaries,
                        settings.train_abandoned,
                        settings.train_side_calls,
                    )
                ),
                # Left out of its group, it is left out of the loss and of its divisor.
                advantage or 0.0,
                constant=result.disposition == "constant",
            )
            for trial, advantage in zip(group, result.advantages, strict=True)
        ]
        for group, result in zip(groups, results, strict=True)
    ]
    counted = [
        trial
        for group, result in zip(scored, results, strict=True)
        for trial, advantage in zip(group, result.advantages, strict=True)
        if advantage is not None
    ]
    by = divisor(counted, batch)
    effects = [
        [
            _effect(trial, score, advantage, divided(trial_data(score, batch), by), settings)
            for trial, score, advantage in zip(group, scores, result.advantages, strict=True)
        ]
        for group, scores, result in zip(groups, scored, results, strict=True)
    ]
    every = [effect for group in effects for effect in group]
    signal = sum(effect.signal for effect in every)
    learning = [effect for effect in every if effect.trained]
    clipped = [
        effect.clip_fraction * effect.trained
        for effect in learning
        if effect.clip_fraction is not None
    ]
    tokens = max(1, sum(effect.trained for effect in learning))
    return StepEffect(
        groups=tuple(
            tuple(replace(e, share=e.signal / signal if signal else 0.0) for e in group)
            for group in effects
        ),
        divisor=by,
        signal=signal,
        clip_fraction=sum(clipped) / tokens if len(clipped) == len(learning) else None,
        learning=len(learning),
    )


def _effect(
    trial: RecordedTrial,
    scored: ScoredTrial,
    advantage: float | None,
    data: Sequence[Datum],
    settings: StepSettings,
) -> TrialEffect:
    signal, clipped = 0.0, 0
    trainer = _trainer_logprobs(trial, settings) if data else []
    for datum, new in zip(data, trainer, strict=True):
        mask = datum.mask
        old, own = datum.logprobs[mask], datum.advantages[mask]
        _, gradient = policy_loss(new, old, own, datum.weights[mask], settings.loss)
        signal += float(np.abs(gradient).sum(dtype=np.float64))
        clipped += int(np.count_nonzero(clipped_tokens(new, old, own, settings.loss)))
    trained = sum(int(np.count_nonzero(datum.mask)) for datum in data)
    return TrialEffect(
        advantage=advantage,
        tokens=scored.action_tokens,
        trained=trained,
        signal=signal,
        share=0.0,
        clip_fraction=None if trial.trainer_logprobs is None else clipped / max(1, trained),
    )


def _trainer_logprobs(
    trial: RecordedTrial, settings: StepSettings
) -> list[npt.NDArray[np.float32]]:
    """For each segment with action tokens; the sampler's own where they are unknown."""
    calls = trial.calls
    if trial.trainer_logprobs is not None:
        calls = tuple(
            replace(call, logprobs=now)
            for call, now in zip(trial.calls, trial.trainer_logprobs, strict=True)
        )
    segments = merge(
        calls, settings.train_summaries, settings.train_abandoned, settings.train_side_calls
    )
    return [segment.logprobs[segment.mask] for segment in segments if segment.action_tokens]
