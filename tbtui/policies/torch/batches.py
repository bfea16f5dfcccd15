"""Data as tensors, and micro-batches of them: padded at the end, of about the same length each.

Every model here is causal, so that what stands behind a token changes nothing about it: rows are
padded with any token at their end, without an attention mask, which leaves the fast kernels of
causal attention usable. What follows the last trained token is not computed at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tbtui.policies.base import Datum, PolicyError


@dataclass(frozen=True, slots=True)
class SegmentTensors:
    """A datum of T tokens, N of them trained, on the CPU."""

    tokens: torch.Tensor
    """[up to, and without, the last trained token]"""
    sources: torch.Tensor
    """[N]: the position that each trained token is predicted from."""
    targets: torch.Tensor
    """[N]"""
    old: torch.Tensor
    """[N]: the sampler's log-probabilities."""
    advantages: torch.Tensor
    weights: torch.Tensor


def tensors_of(datum: Datum, context_limit: int, vocab_size: int) -> SegmentTensors:
    """Raises `PolicyError` for a datum that can't be trained on or scored."""
    length = len(datum.tokens)
    arrays = (datum.mask, datum.logprobs, datum.advantages, datum.weights)
    if any(array.shape != (length,) for array in arrays) or length < 2 or datum.mask[0]:
        raise PolicyError("a datum's arrays differ in length, or it trains its first token")
    if length > context_limit:
        raise PolicyError(f"a datum has {length} tokens; the context limit is {context_limit}")
    if datum.tokens.min() < 0 or datum.tokens.max() >= vocab_size:
        raise PolicyError(f"a datum has a token outside of 0 to {vocab_size - 1}")
    trained = np.flatnonzero(datum.mask)
    last = int(trained[-1]) if len(trained) else 0
    return SegmentTensors(
        tokens=torch.from_numpy(datum.tokens[:last].astype(np.int64)),
        sources=torch.from_numpy(trained - 1),
        targets=torch.from_numpy(datum.tokens[trained].astype(np.int64)),
        old=_floats(datum.logprobs[trained]),
        advantages=_floats(datum.advantages[trained]),
        weights=_floats(datum.weights[trained]),
    )


def micro_batches(segments: Sequence[SegmentTensors], most_tokens: int) -> list[list[int]]:
    """Indices of segments by micro-batch, the longest first.

    A micro-batch has at most `most_tokens` tokens, padding included, but one segment always fits.
    Segments without trained tokens are in none.
    """
    order = sorted(
        (index for index, segment in enumerate(segments) if len(segment.targets)),
        key=lambda index: -len(segments[index].tokens),
    )
    batches: list[list[int]] = []
    for index in order:
        longest = len(segments[batches[-1][0]].tokens) if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= most_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@dataclass(frozen=True, slots=True)
class Padded:
    """A micro-batch of B segments on the device, with N trained tokens in all."""

    tokens: torch.Tensor
    """[B, longest]"""
    rows: torch.Tensor
    """[N]: the segment of each trained token."""
    columns: torch.Tensor
    """[N]: the position that it is predicted from."""
    targets: torch.Tensor
    """[N]"""
    counts: tuple[int, ...]
    """Trained tokens of each segment."""


def padded(segments: Sequence[SegmentTensors], device: str) -> Padded:
    counts = tuple(len(segment.targets) for segment in segments)
    return Padded(
        tokens=torch.nn.utils.rnn.pad_sequence(
            [segment.tokens for segment in segments], batch_first=True
        ).to(device),
        rows=torch.repeat_interleave(torch.arange(len(segments)), torch.tensor(counts)).to(device),
        columns=torch.cat([segment.sources for segment in segments]).to(device),
        targets=torch.cat([segment.targets for segment in segments]).to(device),
        counts=counts,
    )


def _floats(array: npt.NDArray[np.float32]) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float32))
