"""From segments and advantages to the data of one optimiser step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tbtui.algorithm.datum import Datum
from tbtui.algorithm.segments import Segment


@dataclass(frozen=True, slots=True)
class ScoredTrial:
    """A trial's segments, which share its advantage."""

    segments: tuple[Segment, ...]
    advantage: float


def build_data(trials: Sequence[ScoredTrial]) -> list[Datum]:
    """Data whose summed loss is the mean over all action tokens of the batch.

    The normaliser is the number of action tokens in trials with an advantage other than zero, so
    that a longer trial weighs more by its length and constant groups don't shrink the step
    (Yu et al. 2025, DAPO, arXiv 2503.14476, section 3.3: token-level loss).
    """
    learning = [trial for trial in trials if trial.advantage != 0.0]
    tokens = sum(segment.action_tokens for trial in learning for segment in trial.segments)
    if not tokens:
        return []
    return [
        _datum(segment, trial.advantage, 1.0 / tokens)
        for trial in learning
        for segment in trial.segments
        if segment.action_tokens
    ]


def _datum(segment: Segment, advantage: float, weight: float) -> Datum:
    mask = segment.mask.astype(np.float32)
    return Datum(
        tokens=segment.tokens,
        mask=segment.mask,
        logprobs=segment.logprobs,
        advantages=mask * np.float32(advantage),
        weights=mask * np.float32(weight),
    )
