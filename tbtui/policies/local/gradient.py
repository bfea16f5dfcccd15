"""Loss and gradient of a batch of sequences: packed, and spread over threads.

Which sequences share a pack and which thread takes it is decided beforehand from the lengths
alone, and the threads' gradients are added in order, so a step gives the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tbtui.policies.local.backward import backward, rms_norm_backward
from tbtui.policies.local.forward import Packed, forward, rms_norm
from tbtui.policies.local.model import Array, IntArray, Parameters, Rotary

LARGEST_PACK = 4096
SMALLEST_PACK = 1024

TokenLoss = Callable[[Array], tuple[float, Array]]
"""Log-probabilities of a sequence's trained tokens -> the loss and its derivative by them."""


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """A sequence of T tokens, the trained positions among them (never 0), and their loss."""

    tokens: IntArray  # [T]
    trained: IntArray  # [K] indices into tokens
    loss: TokenLoss


@dataclass(frozen=True, slots=True)
class SequenceOutcome:
    """One sequence's loss and, per trained token, log-probability and entropy (nats)."""

    loss: float
    logprobs: Array  # [K]
    entropies: Array  # [K]


def packs_of(lengths: Sequence[int], threads: int) -> list[list[list[int]]]:
    """For each thread its packs, each a list of indices; sequences of like length go together."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    even_share = -(-sum(lengths) // threads)
    limit = min(LARGEST_PACK, max(SMALLEST_PACK, even_share))
    packs: list[list[int]] = []
    for index in order:
        if packs and lengths[packs[-1][0]] * (len(packs[-1]) + 1) <= limit:
            packs[-1].append(index)
        else:
            packs.append([index])
    shares: list[list[list[int]]] = [[] for _ in range(threads)]
    loads = [0] * threads
    for pack in packs:
        lightest = loads.index(min(loads))
        shares[lightest].append(pack)
        loads[lightest] += lengths[pack[0]] * len(pack)
    return shares


def _pack_gradient(
    parameters: Parameters,
    rotary: Rotary,
    sequences: Sequence[TrainingSequence],
    gradient: Parameters | None,
) -> list[SequenceOutcome]:
    config = parameters.config
    # The last token is only ever predicted, never read.
    packed = Packed.of([sequence.tokens[:-1] for sequence in sequences])
    hidden, traces = forward(parameters, packed, rotary)
    selected = np.concatenate(
        [s.trained - 1 + start for s, start in zip(sequences, packed.starts, strict=True)]
    )
    targets = np.concatenate([s.tokens[s.trained] for s in sequences])
    normed = rms_norm(hidden[selected], parameters.final_norm, config.norm_epsilon)
    logits = normed.out @ parameters.embedding.T
    logits -= logits.max(-1, keepdims=True)
    probabilities = np.exp(logits)
    total = probabilities.sum(-1)
    log_total = np.log(total)
    index = np.arange(len(selected))
    logprobs = logits[index, targets] - log_total
    probabilities /= total[:, None]
    entropies = log_total - np.einsum("kv,kv->k", probabilities, logits)

    outcomes = []
    d_logprobs = np.empty(len(selected), np.float32)
    start = 0
    for sequence in sequences:
        part = slice(start, start + len(sequence.trained))
        loss, d_logprobs[part] = sequence.loss(logprobs[part])
        outcomes.append(SequenceOutcome(loss, logprobs[part], entropies[part]))
        start = part.stop
    if gradient is None:
        return outcomes

    d_logits = probabilities
    d_logits *= -d_logprobs[:, None]
    d_logits[index, targets] += d_logprobs
    gradient.embedding[...] += d_logits.T @ normed.out
    d_hidden = np.zeros_like(hidden)
    d_hidden[selected] = rms_norm_backward(
        d_logits @ parameters.embedding, parameters.final_norm, normed, gradient.final_norm
    )
    backward(parameters, d_hidden, traces, packed, rotary, gradient)
    return outcomes


def loss_and_gradient(
    parameters: Parameters,
    rotary: Rotary,
    sequences: Sequence[TrainingSequence],
    pool: ThreadPoolExecutor,
    threads: int,
    *,
    want_gradient: bool = True,
) -> tuple[list[SequenceOutcome], Array]:
    """Outcomes in the order of `sequences`, and the flat gradient of the summed loss.

    Without `want_gradient` the second is empty.
    """
    shares = packs_of([len(s.tokens) - 1 for s in sequences], threads)

    def work(share: list[list[int]]) -> tuple[list[tuple[int, SequenceOutcome]], Parameters | None]:
        gradient = Parameters.zeros(parameters.config) if want_gradient and share else None
        outcomes: list[tuple[int, SequenceOutcome]] = []
        for pack in share:
            found = _pack_gradient(parameters, rotary, [sequences[i] for i in pack], gradient)
            outcomes += zip(pack, found, strict=True)
        return outcomes, gradient

    outcomes: dict[int, SequenceOutcome] = {}
    flat: npt.NDArray[np.float32] = np.zeros(
        parameters.config.size() if want_gradient else 0, np.float32
    )
    for found, gradient in pool.map(work, shares):
        outcomes.update(found)
        if gradient is not None:
            flat += gradient.flat
    return [outcomes[i] for i in range(len(sequences))], flat
