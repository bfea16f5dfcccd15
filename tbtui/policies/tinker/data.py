"""Converts training data to the Tinker protocol's, and its answers back.

A datum of T tokens is sent as T - 1 inputs with T - 1 targets, each the token that follows, so
what is said of token t stands at position t - 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.losses import AnyLoss, policy_loss
from tbtui.policies.base import Datum, LossSettings, PolicyError

if TYPE_CHECKING:
    import tinker

FloatArray = npt.NDArray[np.float32]
_ROUNDING = 1e-3
"""What a log-probability may be above 0."""
Masked = tuple[FloatArray, ...]
"""For each datum, one number for each token of its mask, in order of position."""


def check_data(data: Iterable[Datum], context_limit: int | None) -> None:
    """Raises `PolicyError` for data that no server could train on."""
    for datum in data:
        length = len(datum.tokens)
        arrays = (datum.mask, datum.logprobs, datum.advantages, datum.weights)
        if any(array.shape != (length,) for array in arrays) or length < 2 or datum.mask[0]:
            raise PolicyError("a datum's arrays differ in length, or it trains its first token")
        if context_limit is not None and length > context_limit:
            raise PolicyError(f"a datum has {length} tokens; the context limit is {context_limit}")


def policy_data(
    data: Sequence[Datum], loss: AnyLoss, scales: Sequence[float]
) -> list[tinker.Datum]:
    """For a server's own policy-gradient loss, which sums over all positions.

    The protocol has no weight of a token, so it is multiplied into the advantage: the same for
    every loss that is positively homogeneous in it (all of ours but dro). `scales[i]` multiplies
    the loss of datum i too.
    """
    if loss == "dro":
        raise ValueError("dro isn't homogeneous in the advantage: its weights can't be sent")
    sent = []
    for datum, scale in zip(data, scales, strict=True):
        advantages = datum.advantages * datum.weights * np.float32(scale)
        inputs = {
            "logprobs": _where_masked(datum, datum.logprobs),
            "advantages": _where_masked(datum, advantages),
        }
        if loss == "gspo":
            inputs["sequence_ratio_mask"] = datum.mask[1:].astype(np.float32)
        sent.append(_datum(datum, inputs))
    return sent


def cross_entropy_data(data: Sequence[Datum], weights: Masked) -> list[tinker.Datum]:
    """For `cross_entropy`, whose loss is the sum of -weight * logprob; `weights` on the mask."""
    return [
        _datum(datum, {"weights": _on_mask(datum, values)})
        for datum, values in zip(data, weights, strict=True)
    ]


def linear_data(data: Sequence[Datum], logprobs: Masked, slopes: Masked) -> list[tinker.Datum]:
    """For `importance_sampling` at the very weights that `logprobs` came from, where the ratio is
    1 and the loss's derivative with respect to a log-probability is minus its slope."""
    return [
        _datum(datum, {"logprobs": _on_mask(datum, now), "advantages": _on_mask(datum, slope)})
        for datum, now, slope in zip(data, logprobs, slopes, strict=True)
    ]


def masked_ones(data: Sequence[Datum]) -> Masked:
    return tuple(np.ones(np.count_nonzero(datum.mask), np.float32) for datum in data)


def loss_config(loss: LossSettings) -> dict[str, float] | None:
    """A server's bounds are those of the ratio itself."""
    if loss.loss == "importance_sampling":
        return None
    return {
        "clip_low_threshold": 1 - loss.clip_low,
        "clip_high_threshold": 1 + loss.clip_high,
    }


def answered(
    data: Sequence[Datum], output: tinker.ForwardBackwardOutput, field: str = "logprobs"
) -> Masked:
    """What a server's answer says of each datum's mask.

    Raises:
        PolicyError: it doesn't say it, or not of these data.
    """
    outputs = output.loss_fn_outputs
    if len(outputs) != len(data):
        raise PolicyError(
            f"the Tinker server answered {len(outputs)} sequences where {len(data)} were sent"
        )
    values = []
    for datum, fields in zip(data, outputs, strict=True):
        if field not in fields:
            raise PolicyError(f"the Tinker server's answer has no {field}")
        array = np.asarray(fields[field].to_numpy(), np.float32).reshape(-1)
        if len(array) != len(datum.tokens) - 1:
            raise PolicyError(
                f"the Tinker server's answer has {len(array)} {field} for a sequence of"
                f" {len(datum.tokens) - 1} targets"
            )
        found = array[datum.mask[1:]]
        if not np.isfinite(found).all() or (field == "logprobs" and (found > _ROUNDING).any()):
            raise PolicyError(
                f"the Tinker server's {field} of a sequence are none: one is positive or not finite"
            )
        values.append(found)
    return tuple(values)


def _datum(datum: Datum, inputs: dict[str, FloatArray]) -> tinker.Datum:
    import tinker
    from tinker.types import EncodedTextChunk

    # Not validated: the SDK would look at each token in turn, and they are ours.
    tokens = EncodedTextChunk.model_construct(tokens=datum.tokens[:-1].tolist())
    arrays: dict[str, npt.NDArray[np.int64] | FloatArray] = {
        "target_tokens": datum.tokens[1:].astype(np.int64),
        **inputs,
    }
    return tinker.Datum(
        model_input=tinker.ModelInput.model_construct(chunks=[tokens]),
        loss_fn_inputs={
            name: tinker.TensorData.from_numpy(array) for name, array in arrays.items()
        },
    )


def _where_masked(datum: Datum, values: FloatArray) -> FloatArray:
    """From an array over the datum's tokens."""
    return np.where(datum.mask, values, 0).astype(np.float32)[1:]


def _on_mask(datum: Datum, values: FloatArray) -> FloatArray:
    """From one number for each token of the mask."""
    array = np.zeros(len(datum.tokens), np.float32)
    array[datum.mask] = values
    return array[1:]


def loss_and_slopes(
    data: Sequence[Datum], logprobs: Masked, settings: LossSettings
) -> tuple[float, Masked]:
    """The summed loss, and minus its derivative with respect to each of `logprobs`.

    Servers report different things as a batch's loss; and where one has not the loss that was
    asked for, its gradient can be had all the same: any loss with the same derivatives with respect
    to the log-probabilities has the same gradient with respect to the weights (the chain rule; the
    Tinker SDK's `forward_backward_custom` does the same, with torch).
    """
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
