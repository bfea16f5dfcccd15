"""Which tokens are left to draw from (`top_p`, `top_k`, `min_p`). Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbtui.sampling import SamplingParams


def truncated[F: np.floating[Any]](
    scaled: npt.NDArray[F], sampling: SamplingParams
) -> npt.NDArray[F]:
    """Logits [V], divided by the temperature, with -inf for tokens that are not drawn.

    Every one of the three leaves the likeliest tokens, so that a rank says which are left. The
    order (`SamplingParams`) matters to `top_p` alone, whose share is one of what the others have
    left: vLLM's sampler (v1/sample/sampler.py) has `min_p`, `top_k`, `top_p`; transformers 5.24
    has `top_k`, `top_p`, `min_p`, and so a larger share where `min_p` is given too.
    """
    order = np.argsort(-scaled, kind="stable")
    ranked = scaled[order].astype(np.float64)
    weights = np.exp(ranked - ranked[0])
    left = len(ranked)
    if sampling.min_p > 0:
        left = int(np.count_nonzero(weights >= sampling.min_p))
    if 0 < sampling.top_k < left:
        left = min(left, int(np.count_nonzero(ranked >= ranked[sampling.top_k - 1])))
    if sampling.top_p < 1:
        mass = np.cumsum(weights[:left])
        left = int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1
    result = np.full_like(scaled, -np.inf)
    result[order[:left]] = scaled[order[:left]]
    return result
