"""Data of a batch in one call; the trainer builds them as groups come (`grpo/learning.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.algorithm.step import BatchSettings, Datum, ScoredTrial, divided, divisor, trial_data


def build_data(trials: Sequence[ScoredTrial], settings: BatchSettings | None = None) -> list[Datum]:
    """Data whose summed loss is the batch's normalised loss; in the order of the trials."""
    chosen = settings or BatchSettings()
    data = [datum for trial in trials for datum in trial_data(trial, chosen)]
    return divided(data, divisor(trials, chosen))
