"""Loss and gradient of a batch of sequences: packed, spread over threads; the backward pass.

Which sequences share a pack and which thread takes it is decided beforehand from the lengths
alone, and the threads' gradients are added in order, so a step gives the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tbtui.policies.local.model import (
    QUERY_BLOCK,
    Array,
    IntArray,
    Layer,
    LayerTrace,
    Normed,
    Packed,
    Parameters,
    Rotary,
    forward,
    rms_norm,
)

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


def rms_norm_backward(d_out: Array, gain: Array, normed: Normed, d_gain: Array) -> Array:
    """Gradient of the norm's input; the gain's is added to `d_gain`."""
    d_gain += np.einsum("nd,nd->d", d_out, normed.unit)
    d_unit = d_out * gain
    mean = np.einsum("nd,nd->n", d_unit, normed.unit)[:, None] / np.float32(d_out.shape[1])
    result: Array = normed.inverse_rms * (d_unit - normed.unit * mean)
    return result


def _attend_backward(d_attended: Array, trace: LayerTrace) -> tuple[Array, Array, Array]:
    """Gradients of the (scaled) queries, the keys and the values; all [B, heads, T, head_size]."""
    queries, keys, values = trace.queries, trace.keys, trace.values
    d_queries = np.empty_like(queries)
    d_keys, d_values = np.zeros_like(keys), np.zeros_like(values)
    length = queries.shape[2]
    block = min(QUERY_BLOCK, length)
    # Softmax's gradient needs sum(p * dp) per query, which equals sum(out * d_out).
    dot = np.einsum("bhtd,bhtd->bht", d_attended, trace.attended)[..., None]
    for probabilities, start in zip(trace.probabilities, range(0, length, block), strict=True):
        end = min(start + block, length)
        d_block = d_attended[:, :, start:end]
        d_values[:, :, :end] += probabilities.transpose(0, 1, 3, 2) @ d_block
        d_scores = d_block @ values[:, :, :end].transpose(0, 1, 3, 2)
        d_scores -= dot[:, :, start:end]
        d_scores *= probabilities
        d_queries[:, :, start:end] = d_scores @ keys[:, :, :end]
        d_keys[:, :, :end] += d_scores.transpose(0, 1, 3, 2) @ queries[:, :, start:end]
    return d_queries, d_keys, d_values


def layer_backward(
    layer: Layer, d_x: Array, trace: LayerTrace, packed: Packed, rotary: Rotary, gradient: Layer
) -> Array:
    """d_x [N, width] of the layer's output -> of its input; adds to the layer's `gradient`."""
    count, width = d_x.shape
    heads, head_size = trace.queries.shape[1], trace.queries.shape[3]
    hidden = trace.gate.shape[1]

    gradient.down[...] += trace.activated.T @ d_x
    d_activated = d_x @ layer.down.T
    d_gate_up = np.empty((count, 2 * hidden), np.float32)
    d_gate_up[:, hidden:] = d_activated * (trace.gate * trace.sigmoid)
    slope = trace.sigmoid * (1 + trace.gate * (1 - trace.sigmoid))
    d_gate_up[:, :hidden] = d_activated * trace.up * slope
    gradient.gate_up[...] += trace.mlp_in.out.T @ d_gate_up
    d_mlp_in = d_gate_up @ layer.gate_up.T
    d_x = d_x + rms_norm_backward(d_mlp_in, layer.mlp_norm, trace.mlp_in, gradient.mlp_norm)

    gradient.attention_out[...] += trace.attended_flat.T @ d_x
    d_attended = packed.pad((d_x @ layer.attention_out.T).reshape(count, heads, head_size))
    d_queries, d_keys, d_values = _attend_backward(d_attended, trace)
    scale = np.float32(head_size**-0.5)
    d_qkv = np.empty((count, 3, heads, head_size), np.float32)
    positions = packed.positions
    d_qkv[:, 0] = rotary.rotate(packed.unpad(d_queries) * scale, positions, backward=True)
    d_qkv[:, 1] = rotary.rotate(packed.unpad(d_keys), positions, backward=True)
    d_qkv[:, 2] = packed.unpad(d_values)
    d_flat = d_qkv.reshape(count, 3 * width)
    gradient.qkv[...] += trace.attention_in.out.T @ d_flat
    d_in = d_flat @ layer.qkv.T
    return d_x + rms_norm_backward(
        d_in, layer.attention_norm, trace.attention_in, gradient.attention_norm
    )


def backward(
    parameters: Parameters,
    d_x: Array,
    traces: list[LayerTrace],
    packed: Packed,
    rotary: Rotary,
    gradient: Parameters,
) -> None:
    """From d_x [N, width] at the last layer's output down to the embedding.

    Consumes `traces`, so that each layer's memory is free as soon as it has been used.
    """
    for index in reversed(range(len(parameters.layers))):
        d_x = layer_backward(
            parameters.layers[index], d_x, traces.pop(), packed, rotary, gradient.layers[index]
        )
    np.add.at(gradient.embedding, packed.tokens, d_x)
