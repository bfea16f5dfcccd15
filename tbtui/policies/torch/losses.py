"""The losses of `algorithm/losses.py` in PyTorch: the same values, and the same derivatives.

The formulas and their sources stand there. What has no gradient there is detached here.
"""

from __future__ import annotations

import torch

from tbtui.algorithm.losses import LossSettings


def policy_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    settings: LossSettings,
) -> torch.Tensor:
    """The loss of one sequence, a scalar that can be differentiated by `new`.

    All tensors have one entry per trained token: log-probabilities in nats under the weights that
    learn and under those that are compared with, advantages, and weights.
    """
    if settings.loss == "dro":
        gap = new - old
        value = weights * (advantages * new - settings.dro_beta / 2 * gap * gap)
        return -value.sum()
    ratio = _ratio(new, old, settings)
    clipped = ratio.detach().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    match settings.loss:
        case "importance_sampling":
            value = weights * advantages * ratio
        case "ppo" | "gspo":
            lower = clipped * advantages < ratio.detach() * advantages
            value = weights * torch.where(lower, clipped * advantages, ratio * advantages)
        case "cispo":
            value = weights * advantages * clipped * new
    return -value.sum()


def _ratio(new: torch.Tensor, old: torch.Tensor, settings: LossSettings) -> torch.Tensor:
    if settings.loss != "gspo" or not len(new):
        return torch.exp(new - old)
    sequence = torch.exp(torch.mean((new - old).detach(), dtype=torch.float64)).to(new.dtype)
    return sequence * torch.exp(new - new.detach())
