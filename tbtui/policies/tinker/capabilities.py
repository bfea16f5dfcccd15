"""What a Tinker server can do with a model: asked for at the start, before the first trial.

It says which models it has (`ask_server`), but nothing in the protocol says which losses there
are, or whether a batch's loss is a sum or a mean. `forward` passes over a few tokens do: they leave
no gradient and take no step (`ask_training`). What a server reports as the loss is compared with
what its own log-probabilities make it.

SkyRL's JAX engine (0.4.0) reports no loss of a batch but the losses of its tokens, and takes the
gradient of their mean: per sequence over all positions, then over the sequences since the last
optimiser step (`skyrl/backends/jax.py`: `loss_for_lora`, `AccumulatedGradients.get_mean`). It is
known by that answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tbtui.policies.base import Datum, LossName, LossSettings, PolicyRefusedError
from tbtui.policies.tinker.data import (
    FloatArray,
    Masked,
    answered,
    cross_entropy_data,
    loss_and_slopes,
    loss_config,
    masked_ones,
    policy_data,
)
from tbtui.policies.tinker.errors import policy_error, status_code
from tbtui.policies.work import offer

if TYPE_CHECKING:
    import tinker


Reduction = Literal["sum", "sequence_mean"]
"""How a batch's loss is reduced before its gradient is taken: the sum over all tokens, or the mean
over the sequences of each one's mean over all its positions, masked or not."""

NOT_THERE = (400, 404, 405, 422, 501)
"""With these a server says that it can't do something, rather than that it failed."""

# Tokens that any vocabulary has, and how many of them are the prompt. Sequences of two lengths,
# so that sums and means differ.
_SEQUENCES = (((5, 3, 8, 2, 7, 4, 6), 3), ((2, 9, 4, 7), 2))
_ADVANTAGES = (1.0, -0.5)
# Log-ratios on both sides of the clipping at 1 -+ 0.2.
_LOG_RATIOS = (0.4, -0.05, 0.03, -0.4)
_TOLERANCE = 0.02
"""Relative to the magnitudes of a loss's tokens: servers may add in half precision."""
_PATIENCE_SEC = 120.0


@dataclass(frozen=True, slots=True)
class ServerAbilities:
    """What a server can do with a model."""

    model_name: str
    context_limit: int | None
    """Tokens, prompt and completion together; None where the server doesn't say."""
    native_losses: frozenset[LossName] = frozenset()
    """Losses that the server computes as we define them. The others are computed on our side."""
    reduction: Reduction = "sum"
    notes: tuple[str, ...] = ()
    """One line each, for a person."""

    def noting(self, *notes: str) -> ServerAbilities:
        return replace(self, notes=self.notes + notes)


async def ask_server(rest: tinker.RestClient, model_name: str) -> ServerAbilities:
    """The model's context limit.

    Raises:
        PolicyError: the server doesn't have the model, or not to train or sample; or it can't be
            asked.
    """
    try:
        capabilities = await rest.get_server_capabilities()
    except Exception as error:
        if status_code(error) in NOT_THERE:
            return ServerAbilities(model_name, None).noting(
                "the Tinker server doesn't say which models it has"
            )
        doing = "asking the Tinker server for its models"
        raise policy_error(error, doing, training=False) from error
    models = {model.model_name: model for model in capabilities.supported_models}
    names = [name for name in models if name]
    found = models.get(model_name)
    if found is None:
        raise PolicyRefusedError(
            f"model_name={model_name}: the Tinker server has no such model;"
            f" {offer(model_name, names)}"
        )
    for able, what in ((found.trainable, "train"), (found.sampleable, "sample from")):
        if able is False:
            others = [
                name
                for name in names
                if models[name].trainable is not False and models[name].sampleable is not False
            ]
            raise PolicyRefusedError(
                f"model_name={model_name}: the Tinker server has this model, but not to {what};"
                f" {offer(model_name, others)}"
            )
    return ServerAbilities(model_name, found.max_context_length)


async def ask_training(
    client: tinker.TrainingClient, abilities: ServerAbilities, wanted: LossName
) -> ServerAbilities:
    """How the server reduces a loss, and whether it has the wanted one as we define it.

    Raises:
        PolicyError: it can't be trained on at all, or not with this loss.
        PolicyLostError: the training client is gone.
    """
    plain, data = await _cross_entropy(client)
    reduction, notes = _reduction(data, plain)
    native: set[LossName] = set()
    # What a mean leaves of cross-entropy can't stand in for another loss; this one can.
    stand_in: set[LossName] = {"importance_sampling"} if reduction == "sequence_mean" else set()
    # The weights of dro can't be sent: its quadratic term isn't homogeneous in the advantage.
    for loss in sorted(stand_in | {wanted} - {"dro"}):
        verdict = await _ask_loss(client, data, loss, reduction)
        if verdict == "ours":
            native.add(loss)
        elif verdict == "another":
            notes.append(f"the Tinker server's {loss} is not the loss that we know by that name")
    if not stand_in <= native:
        raise PolicyRefusedError(
            "the Tinker server averages a loss over the sequences and has no importance_sampling"
            " to make up for it: no loss of ours can be trained with there"
        )
    if wanted not in native:
        notes.append(
            f"loss_fn={wanted} is computed here, not by the Tinker server: exact, but each"
            " gradient costs one more forward pass, and the optimiser step waits for it"
        )
    return replace(
        abilities,
        native_losses=frozenset(native),
        reduction=reduction,
        notes=(*abilities.notes, *notes),
    )


async def _cross_entropy(
    client: tinker.TrainingClient,
) -> tuple[tinker.ForwardBackwardOutput, list[Datum]]:
    """The answer to a forward pass that every server has, and data for the others: what we
    compare with is not far from the weights' own log-probabilities."""
    data = [_datum(tokens, prompt) for tokens, prompt in _SEQUENCES]
    try:
        output = await client.forward(cross_entropy_data(data, masked_ones(data)), "cross_entropy")
        logprobs = answered(data, output)
    except Exception as error:
        raise policy_error(error, "a trial forward pass") from error
    return output, [
        _compared(datum, new, advantage)
        for datum, new, advantage in zip(data, logprobs, _ADVANTAGES, strict=True)
    ]


def _datum(tokens: tuple[int, ...], prompt: int) -> Datum:
    zeros = np.zeros(len(tokens), np.float32)
    mask = np.arange(len(tokens)) >= prompt
    return Datum(np.array(tokens, np.int32), mask, zeros, zeros, mask.astype(np.float32))


def _compared(datum: Datum, new: FloatArray, advantage: float) -> Datum:
    logprobs = datum.logprobs.copy()
    logprobs[datum.mask] = new - np.array(_LOG_RATIOS[: len(new)], np.float32)
    return replace(datum, logprobs=logprobs, advantages=datum.weights * np.float32(advantage))


def _reduction(
    data: Sequence[Datum], output: tinker.ForwardBackwardOutput
) -> tuple[Reduction, list[str]]:
    logprobs = answered(data, output)
    losses = [-float(new.sum()) for new in logprobs]
    means = [-float(new.mean()) for new in logprobs]
    reported = _reported_loss(output)
    if reported is not None:
        if _close(reported, sum(losses), losses):
            return "sum", []
        if _close(reported, sum(means) / len(means), means):
            return "sequence_mean", [
                "the Tinker server averages a loss over the sequences (gradients are scaled to make"
                " up for it)"
            ]
    elif all("elementwise_loss" in fields for fields in output.loss_fn_outputs):
        return "sequence_mean", [
            "the Tinker server answers as SkyRL's JAX engine does, which averages a loss over"
            " positions and sequences (gradients are scaled to make up for it) and ignores"
            " grad_clip"
        ]
    return "sum", [
        "the Tinker server doesn't say whether it sums a loss over the tokens; it is taken for"
        " granted that it does"
    ]


async def _ask_loss(
    client: tinker.TrainingClient, data: Sequence[Datum], loss: LossName, reduction: Reduction
) -> Literal["ours", "another", "missing"]:
    import tinker

    settings = LossSettings(loss, clip_low=0.2, clip_high=0.2)
    sent = policy_data(data, loss, [1.0] * len(data))
    doing = f"a trial forward pass with loss_fn={loss}"
    try:
        output = await client.forward(sent, loss, loss_config(settings))
        return _verdict(data, output, settings, reduction)
    except Exception as error:
        refused = isinstance(error, tinker.RequestFailedError)
        if not refused and status_code(error) not in NOT_THERE:
            raise policy_error(error, doing) from error
    await _goes_on(client, doing)
    return "missing"


async def _goes_on(client: tinker.TrainingClient, refused: str) -> None:
    """A refused request leaves a gap in the numbers that put requests in order; a server that
    waits for the missing one would wait for ever."""
    try:
        async with asyncio.timeout(_PATIENCE_SEC):
            await _cross_entropy(client)
    except TimeoutError:
        raise PolicyRefusedError(
            f"{refused}: the Tinker server refused it and has not answered since; choose another"
            " loss_fn"
        ) from None


def _verdict(
    data: Sequence[Datum],
    output: tinker.ForwardBackwardOutput,
    settings: LossSettings,
    reduction: Reduction,
) -> Literal["ours", "another"]:
    expected = _losses(data, answered(data, output), settings)
    reported = _reported_loss(output)
    if reported is not None:
        if reduction == "sequence_mean":
            expected = [
                loss / (len(datum.tokens) - 1) / len(data)
                for loss, datum in zip(expected, data, strict=True)
            ]
        same = _close(reported, sum(expected), expected)
    elif all("elementwise_loss" in fields for fields in output.loss_fn_outputs):
        found = [float(each.sum()) for each in answered(data, output, "elementwise_loss")]
        same = all(_close(a, b, expected) for a, b in zip(found, expected, strict=True))
    else:
        # Nothing can be compared. A server that doesn't know of `sequence_ratio_mask` would take
        # the prompt for a part of the sequence; the other losses have nothing to misunderstand.
        same = settings.loss != "gspo"
    return "ours" if same else "another"


def _losses(data: Sequence[Datum], logprobs: Masked, settings: LossSettings) -> list[float]:
    return [
        loss_and_slopes([datum], (new,), settings)[0]
        for datum, new in zip(data, logprobs, strict=True)
    ]


def _reported_loss(output: tinker.ForwardBackwardOutput) -> float | None:
    """The batch's loss by the server's metrics."""
    for name, value in output.metrics.items():
        if name.partition(":")[0] in ("loss", "total_loss"):
            return value
    return None


def _close(found: float, expected: float, terms: Sequence[float]) -> bool:
    return abs(found - expected) <= _TOLERANCE * sum(abs(term) for term in terms)
