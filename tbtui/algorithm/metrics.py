"""What an optimiser step did to the policy, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.datum import Datum


def sampler_trainer_metrics(
    data: Sequence[Datum], trained: Sequence[npt.NDArray[np.float32]]
) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's, before the step.

    `trained[i]` holds datum i's log-probabilities at its masked positions. `kl_sample_train_v1`
    and `_v2` are the estimators k1 and k2 of Schulman's note "Approximating KL Divergence"
    (2020): the mean of sampled minus trained, and of half its square. Nats per token.
    """
    if not data:
        return {}
    sampled = np.concatenate([datum.logprobs[datum.mask] for datum in data]).astype(np.float64)
    now = np.concatenate(trained).astype(np.float64)
    gap = sampled - now
    return {
        "optim/kl_sample_train_v1": float(gap.mean()),
        "optim/kl_sample_train_v2": float((gap**2).mean() / 2),
        "optim/max_logprob_gap": float(np.abs(gap).max()),
        "optim/surprise": float(-sampled.mean()),
    }
