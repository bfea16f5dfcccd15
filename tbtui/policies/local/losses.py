"""Policy-gradient losses on one sequence's trained tokens, with their gradients.

With r = exp(new - old), advantage A and weight w, summed over the trained tokens:

    importance_sampling  -w A r
    ppo                  -w min(r A, clip(r, 1 - low, 1 + high) A)   (Schulman et al. 2017; unequal
                         low and high as in DAPO, Yu et al. 2025)
    cispo                -w A stop_gradient(clip(r, 1 - low, 1 + high)) new   (MiniMax-M1, 2025)
"""

from __future__ import annotations

import numpy as np

from tbtui.policies.base import LossName, PolicyError, TrainSettings
from tbtui.policies.local.model import Array

LOSSES: tuple[LossName, ...] = ("importance_sampling", "ppo", "cispo")


def policy_loss(
    new: Array, old: Array, advantages: Array, weights: Array, settings: TrainSettings
) -> tuple[float, Array]:
    """The loss and its derivative with respect to `new`; all arrays have one entry per token.

    Raises `PolicyError` for a loss that this policy doesn't have.
    """
    scale = weights * advantages
    ratio = np.exp(new - old)
    clipped = np.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    match settings.loss:
        case "importance_sampling":
            return -float(np.sum(scale * ratio, dtype=np.float64)), -scale * ratio
        case "ppo":
            surrogate = np.minimum(ratio * advantages, clipped * advantages)
            passes = ratio * advantages <= clipped * advantages
            loss = -float(np.sum(weights * surrogate, dtype=np.float64))
            return loss, np.where(passes, -scale * ratio, np.float32(0))
        case "cispo":
            loss = -float(np.sum(scale * clipped * new, dtype=np.float64))
            return loss, -scale * clipped
        case _:
            raise PolicyError(
                f"the local policy has no loss {settings.loss!r}; choose one of {', '.join(LOSSES)}"
            )
