"""The loss of a server's log-probabilities, computed on our side.

Servers report different things as a batch's loss; and where one has not the loss that was asked
for, its gradient can be had all the same: any loss with the same derivatives with respect to the
log-probabilities has the same gradient with respect to the weights (the chain rule; the Tinker
SDK's `forward_backward_custom` does the same, with torch).
"""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.algorithm.losses import policy_loss
from tbtui.policies.base import Datum, LossSettings
from tbtui.policies.tinker.data import FloatArray, Masked


def loss_and_slopes(
    data: Sequence[Datum], logprobs: Masked, settings: LossSettings
) -> tuple[float, Masked]:
    """The summed loss, and minus its derivative with respect to each of `logprobs`."""
    total = 0.0
    slopes: list[FloatArray] = []
    for datum, new in zip(data, logprobs, strict=True):
        mask = datum.mask
        loss, derivative = policy_loss(
            new, datum.logprobs[mask], datum.advantages[mask], datum.weights[mask], settings
        )
        total += loss
        slopes.append(-derivative)
    return total, tuple(slopes)
