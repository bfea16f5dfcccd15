"""The forward pass over a packed batch, keeping what the backward pass needs.

Linear layers see the N tokens of all sequences end to end, so nothing is spent on padding;
attention sees them padded to the longest sequence, in blocks of queries so that the half of the
scores that the causal mask would hide is mostly never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from tbtui.policies.local.model import Array, IntArray, Layer, Parameters, Rotary

QUERY_BLOCK = 128
_HIDDEN = np.float32(-1e30)


@dataclass(frozen=True, slots=True)
class Packed:
    """B sequences laid end to end, N tokens in all."""

    tokens: IntArray  # [N]
    lengths: IntArray  # [B]
    rows: IntArray  # [N]: which sequence
    positions: IntArray  # [N]: where in it
    starts: IntArray  # [B]: index of each sequence's first token

    @classmethod
    def of(cls, sequences: Sequence[IntArray]) -> Self:
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        starts = np.cumsum(lengths) - lengths
        return cls(
            tokens=np.concatenate(sequences),
            lengths=lengths,
            rows=np.repeat(np.arange(len(lengths)), lengths),
            positions=np.arange(int(lengths.sum())) - np.repeat(starts, lengths),
            starts=starts,
        )

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def pad(self, x: Array) -> Array:
        """[N, heads, size] -> [B, heads, longest, size], zeros behind each sequence."""
        batch, longest = len(self.lengths), self.longest
        if len(self.tokens) == batch * longest:
            return np.ascontiguousarray(
                x.reshape(batch, longest, *x.shape[1:]).transpose(0, 2, 1, 3)
            )
        padded = np.zeros((batch, x.shape[1], longest, x.shape[2]), np.float32)
        padded[self.rows, :, self.positions] = x
        return padded

    def unpad(self, x: Array) -> Array:
        """The inverse of `pad`."""
        if len(self.tokens) == x.shape[0] * x.shape[2]:
            turned = np.ascontiguousarray(x.transpose(0, 2, 1, 3))
            return turned.reshape(len(self.tokens), x.shape[1], x.shape[3])
        unpadded: Array = x[self.rows, :, self.positions]
        return unpadded


class Normed(NamedTuple):
    """RMSNorm's output and what its gradient needs."""

    out: Array  # [N, width]
    unit: Array  # [N, width]: before the gain
    inverse_rms: Array  # [N, 1]


class LayerTrace(NamedTuple):
    """One layer's intermediate values. Queries are scaled by 1/sqrt(head_size)."""

    attention_in: Normed
    queries: Array  # [B, heads, T, head_size]
    keys: Array
    values: Array
    probabilities: list[Array]  # per block of queries: [B, heads, block, keys up to its end]
    attended: Array  # [B, heads, T, head_size]
    attended_flat: Array  # [N, width]
    mlp_in: Normed
    gate: Array  # [N, feed_forward]
    up: Array
    sigmoid: Array
    activated: Array  # silu(gate) * up


def rms_norm(x: Array, gain: Array, epsilon: float) -> Normed:
    mean_square = np.einsum("nd,nd->n", x, x) / np.float32(x.shape[1])
    inverse_rms = (1 / np.sqrt(mean_square + np.float32(epsilon)))[:, None]
    unit = x * inverse_rms
    return Normed(unit * gain, unit, inverse_rms)


def softmax_in_place(scores: Array) -> Array:
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def _attend(queries: Array, keys: Array, values: Array) -> tuple[Array, list[Array]]:
    length = queries.shape[2]
    block = min(QUERY_BLOCK, length)
    future = np.triu(np.full((block, block), _HIDDEN, np.float32), 1)
    transposed = keys.transpose(0, 1, 3, 2)
    attended = np.empty_like(queries)
    probabilities = []
    for start in range(0, length, block):
        end = min(start + block, length)
        scores = queries[:, :, start:end] @ transposed[..., :end]
        scores[..., start:end] += future[: end - start, : end - start]
        softmax_in_place(scores)
        attended[:, :, start:end] = scores @ values[:, :, :end]
        probabilities.append(scores)
    return attended, probabilities


def layer_forward(
    layer: Layer, x: Array, packed: Packed, rotary: Rotary, heads: int, epsilon: float
) -> tuple[Array, LayerTrace]:
    """One layer: x [N, width] in and out."""
    count, width = x.shape
    head_size = width // heads
    attention_in = rms_norm(x, layer.attention_norm, epsilon)
    qkv = (attention_in.out @ layer.qkv).reshape(count, 3, heads, head_size)
    scale = np.float32(head_size**-0.5)
    queries = packed.pad(rotary.rotate(qkv[:, 0], packed.positions) * scale)
    keys = packed.pad(rotary.rotate(qkv[:, 1], packed.positions))
    values = packed.pad(qkv[:, 2])
    attended, probabilities = _attend(queries, keys, values)
    attended_flat = packed.unpad(attended).reshape(count, width)
    x = x + attended_flat @ layer.attention_out

    mlp_in = rms_norm(x, layer.mlp_norm, epsilon)
    gate_up = mlp_in.out @ layer.gate_up
    gate, up = np.split(gate_up, 2, axis=1)
    sigmoid = 1 / (1 + np.exp(-gate))
    activated = gate * sigmoid * up
    trace = LayerTrace(
        attention_in, queries, keys, values, probabilities, attended, attended_flat,
        mlp_in, gate, up, sigmoid, activated,
    )  # fmt: skip
    return x + activated @ layer.down, trace


def forward(
    parameters: Parameters, packed: Packed, rotary: Rotary
) -> tuple[Array, list[LayerTrace]]:
    """The hidden state [N, width] before the final norm, and each layer's trace."""
    config = parameters.config
    x: Array = parameters.embedding[packed.tokens]
    traces = []
    for layer in parameters.layers:
        x, trace = layer_forward(layer, x, packed, rotary, config.heads, config.norm_epsilon)
        traces.append(trace)
    return x, traces
