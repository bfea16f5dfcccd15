"""Policy-gradient losses on one sequence's trained tokens, with their gradients.

With r = exp(new - old), advantage A and weight w, summed over the trained tokens; `clip` bounds a
ratio by 1 - clip_low and 1 + clip_high, and [x] is x without a gradient:

    importance_sampling  -w A r
    ppo                  -w min(r A, clip(r) A)   (Schulman et al. 2017, arXiv 1707.06347, equation
                         7; unequal bounds: DAPO, Yu et al. 2025, arXiv 2503.14476, section 3.1)
    cispo                -w A [clip(r)] new   (MiniMax-M1, Chen et al. 2025, arXiv 2506.13585,
                         section 3.1)
    gspo                 -w min(s A, clip(s) A), s = [exp(mean(new - old))] exp(new - [new]): one
                         ratio for the sequence, with each token's own gradient (GSPO-token, Zheng
                         et al. 2025, arXiv 2507.18071, section 4.3). Where all tokens share A and
                         w, value and gradient are those of the sequence-level objective (equation
                         5). The paper's bounds are 3e-4 and 4e-4.
    dro                  -w (A new - beta / 2 (new - old)^2)   (Richemond et al. 2024, arXiv
                         2405.19107; in this per-token form Tinker's loss of that name)
    cross_entropy        -w A new: of demonstrations, which were not sampled
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tbtui.vocabulary import LossName as LossName

AnyLoss = LossName | Literal["cross_entropy"]
"""Those of rollouts, and that of demonstrations."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    loss: AnyLoss = "importance_sampling"
    clip_low: float = 0.2
    """The ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 + clip_high."""
    dro_beta: float = 0.05


def policy_loss[F: np.floating[Any]](
    new: npt.NDArray[F],
    old: npt.NDArray[F],
    advantages: npt.NDArray[F],
    weights: npt.NDArray[F],
    settings: LossSettings,
) -> tuple[float, npt.NDArray[F]]:
    """The loss of one sequence and its derivative with respect to `new`.

    All arrays have one entry per trained token: log-probabilities in nats under the weights that
    learn and under those that are compared with, advantages, and weights. The loss is summed in
    double precision; the derivative has the type of `new`.
    """
    scale = weights * advantages
    ratio = _ratio(new, old, settings)
    match settings.loss:
        case "importance_sampling":
            value, gradient = scale * ratio, scale * ratio
        case "ppo" | "gspo":
            surrogate = np.minimum(ratio * advantages, _clip(ratio, settings) * advantages)
            clipped = clipped_tokens(new, old, advantages, settings)
            value, gradient = weights * surrogate, np.where(clipped, 0, scale * ratio)
        case "cispo":
            gradient = scale * _clip(ratio, settings)
            value = gradient * new
        case "dro":
            gap = new - old
            value = weights * (advantages * new - settings.dro_beta / 2 * gap * gap)
            gradient = weights * (advantages - settings.dro_beta * gap)
        case "cross_entropy":
            value, gradient = scale * new, scale
    return -float(np.sum(value, dtype=np.float64)), (-gradient).astype(new.dtype)


def clipped_tokens[F: np.floating[Any]](
    new: npt.NDArray[F], old: npt.NDArray[F], advantages: npt.NDArray[F], settings: LossSettings
) -> npt.NDArray[np.bool_]:
    """Which tokens' gradient the clipping changed: lost it (ppo, gspo) or bounded it (cispo)."""
    ratio = _ratio(new, old, settings)
    clipped = _clip(ratio, settings)
    match settings.loss:
        case "ppo" | "gspo":
            return np.asarray(clipped * advantages < ratio * advantages)
        case "cispo":
            return np.asarray((clipped != ratio) & (advantages != 0))
        case "importance_sampling" | "dro" | "cross_entropy":
            return np.zeros(len(new), np.bool_)


def _ratio[F: np.floating[Any]](
    new: npt.NDArray[F], old: npt.NDArray[F], settings: LossSettings
) -> npt.NDArray[F]:
    gap = new - old
    if settings.loss == "gspo" and len(gap):
        gap = np.full_like(gap, np.mean(gap, dtype=np.float64))
    ratio: npt.NDArray[F] = np.exp(gap)
    return ratio


def _clip[F: np.floating[Any]](ratio: npt.NDArray[F], settings: LossSettings) -> npt.NDArray[F]:
    clipped: npt.NDArray[F] = np.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    return clipped
