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

    A longer trial weighs more by its length (the token-level loss of Yu et al. 2025, DAPO, arXiv
    2503.14476, section 3.3). Trials without an advantage have no datum but count in the mean:
    divided by the learning ones alone, the few failures of an almost solved batch would move the
    policy as far as a batch full of them, and late training would drift.
    """
    tokens = sum(segment.action_tokens for trial in trials for segment in trial.segments)
    learning = [trial for trial in trials if trial.advantage != 0.0]
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
