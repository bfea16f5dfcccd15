"""Tinker's losses on the embedded policy.

In Tinker a datum is N input tokens with N targets, and every loss is a plain sum over the targets
(t: target's log-probability under the trained weights, q: the `logprobs` given, A: `advantages`):

    cross_entropy        -weights t
    importance_sampling  -A exp(t - q)
    ppo                  -min(r A, clip(r) A), r = exp(t - q)
    cispo                -A [clip(r)] t
    dro                  -(A t - beta / 2 (t - q)^2): every target counts, the prompt's too
    gspo                 as ppo with one ratio for the sequence, that of `sequence_ratio_mask`

The embedded policy's datum is the N + 1 tokens of the whole sequence. `clip_*_threshold` are
bounds of the ratio, ours their distance from 1. Where no weight is given it is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.losses import LossName, LossSettings, policy_loss
from tbtui.algorithm.step import Datum
from tests.tinker_server.errors import HttpError

Floats = npt.NDArray[np.float32]

_CLIPS = frozenset({"clip_low_threshold", "clip_high_threshold"})
_CONFIG: Mapping[str, frozenset[str]] = {
    "cross_entropy": frozenset(),
    "importance_sampling": frozenset(),
    "ppo": _CLIPS,
    "cispo": _CLIPS,
    "gspo": _CLIPS,
    "dro": frozenset({"beta"}),
}
"""What each loss may be given as its `loss_fn_config`."""


@dataclass(frozen=True, slots=True)
class WireDatum:
    """N input tokens, and arrays of length N by name; `target_tokens` is one of them."""

    tokens: npt.NDArray[np.int64]
    inputs: Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class LossBatch:
    """`trained`: what the loss is taken over. `whole`: the same with every target in the mask."""

    settings: LossSettings
    trained: tuple[Datum, ...]
    whole: tuple[Datum, ...]

    def loss(self, logprobs: tuple[Floats, ...]) -> float:
        """The summed loss of `trained`, from log-probabilities of every target."""
        total = 0.0
        for datum, found in zip(self.trained, logprobs, strict=True):
            chosen = datum.mask
            total += policy_loss(
                found[chosen[1:]],
                datum.logprobs[chosen],
                datum.advantages[chosen],
                datum.weights[chosen],
                self.settings,
            )[0]
        return total


def loss_batch(
    loss_fn: str, config: Mapping[str, float | str], data: list[WireDatum], context_limit: int
) -> LossBatch:
    """Raises `HttpError` 422 for what the embedded policy can't do."""
    settings = _settings(loss_fn, config)
    whole = tuple(
        _datum(loss_fn, datum, context_limit, f"data[{index}]") for index, datum in enumerate(data)
    )
    if not whole:
        raise HttpError(422, "data is empty")
    if loss_fn != "gspo":
        return LossBatch(settings, whole, whole)
    trained = tuple(_over_ratio_mask(*pair) for pair in zip(whole, data, strict=True))
    return LossBatch(settings, trained, whole)


def _settings(loss_fn: str, config: Mapping[str, float | str]) -> LossSettings:
    if loss_fn not in _CONFIG:
        raise HttpError(422, f"loss_fn {loss_fn!r} is not supported; one of {sorted(_CONFIG)} is")
    numbers: dict[str, float] = {}
    for name, value in config.items():
        if name not in _CONFIG[loss_fn] or isinstance(value, str):
            raise HttpError(422, f"loss_fn_config {name!r} is not supported for {loss_fn}")
        numbers[name] = value
    return LossSettings(
        loss="dro" if loss_fn == "cross_entropy" else cast(LossName, loss_fn),
        clip_low=1 - numbers.get("clip_low_threshold", 0.8),
        clip_high=numbers.get("clip_high_threshold", 1.2) - 1,
        dro_beta=0.0 if loss_fn == "cross_entropy" else numbers.get("beta", 0.05),
    )


def _datum(loss_fn: str, datum: WireDatum, context_limit: int, where: str) -> Datum:
    count = len(datum.tokens)
    needed = {"target_tokens", "logprobs", "advantages"}
    if loss_fn == "cross_entropy":
        needed = {"target_tokens", "weights"}
    if missing := needed - datum.inputs.keys():
        raise HttpError(422, f"{where}: {loss_fn} needs {sorted(missing)}")
    allowed = needed | {"sequence_ratio_mask"} if loss_fn == "gspo" else needed
    if unknown := datum.inputs.keys() - allowed:
        raise HttpError(422, f"{where}: {loss_fn} takes no {sorted(unknown)}")
    for name, array in datum.inputs.items():
        if array.shape != (count,):
            raise HttpError(422, f"{where}: {name} has shape {array.shape}, not ({count},)")
    targets = datum.inputs["target_tokens"]
    if count < 1 or count + 1 > context_limit:
        raise HttpError(422, f"{where}: {count} tokens; the context length is {context_limit}")
    if not np.array_equal(targets[:-1], datum.tokens[1:]):
        raise HttpError(422, f"{where}: target_tokens are not the input's, shifted by one")
    advantage = "weights" if loss_fn == "cross_entropy" else "advantages"
    old = np.zeros(count) if loss_fn == "cross_entropy" else datum.inputs["logprobs"]
    mask = np.ones(count + 1, np.bool_)
    mask[0] = False
    return Datum(
        tokens=np.append(datum.tokens, targets[-1:]).astype(np.int32),
        mask=mask,
        logprobs=_shifted(old),
        advantages=_shifted(datum.inputs[advantage]),
        weights=np.ones(count + 1, np.float32),
    )


def _shifted(values: npt.NDArray[np.generic]) -> Floats:
    return np.concatenate([np.zeros(1, np.float32), values.astype(np.float32)])


def _over_ratio_mask(whole: Datum, datum: WireDatum) -> Datum:
    given = datum.inputs.get("sequence_ratio_mask")
    if given is None:
        return whole
    mask = _shifted(given) != 0
    if whole.advantages[~mask].any():
        raise HttpError(422, "gspo: advantages outside of sequence_ratio_mask are not supported")
    return Datum(whole.tokens, mask, whole.logprobs, whole.advantages, whole.weights)
