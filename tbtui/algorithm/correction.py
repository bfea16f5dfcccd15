"""Changes to a batch's data that need log-probabilities from other weights than the sampler's.

The penalty for leaving a reference compares with the sampler's log-probabilities, so it comes
first; the correction of the sampler replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.datum import Datum

Logprobs = Sequence[npt.NDArray[np.float32]]
"""For each datum, log-probabilities (nats) of its masked tokens, in order of position."""


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
