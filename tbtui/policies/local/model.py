"""The model's shape, its parameters, and the forward pass over a packed batch.

The parameters are one flat vector with named views into it. The forward pass keeps what the
backward pass needs. Linear layers see the N tokens of all sequences end to end, so nothing is spent
on padding; attention sees them padded to the longest sequence, in blocks of queries so that the
half of the scores that the causal mask would hide is mostly never computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Llama: RMSNorm before each block, rotary positions, SwiGLU, tied embeddings, no biases."""

    vocab_size: int
    width: int = 128
    layers: int = 3
    heads: int = 4
    feed_forward: int = 384
    context_limit: int = 1024
    """Tokens, prompt and completion together."""
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-6

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters by name, in the order of the flat vector."""
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocab_size, self.width)}
        for i in range(self.layers):
            shapes |= {
                f"{i}.attention_norm": (self.width,),
                f"{i}.qkv": (self.width, 3 * self.width),
                f"{i}.attention_out": (self.width, self.width),
                f"{i}.mlp_norm": (self.width,),
                f"{i}.gate_up": (self.width, 2 * self.feed_forward),
                f"{i}.down": (self.feed_forward, self.width),
            }
        return shapes | {"final_norm": (self.width,)}

    def size(self) -> int:
        """Number of parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())


class Layer(NamedTuple):
    """One layer's parameters (or their gradients). Matrices map rows of x to x @ W."""

    attention_norm: Array  # [width]
    qkv: Array  # [width, 3 * width]: query, key, value, each heads x head_size
    attention_out: Array  # [width, width]
    mlp_norm: Array  # [width]
    gate_up: Array  # [width, 2 * feed_forward]: gate, then up
    down: Array  # [feed_forward, width]


class Parameters:
    """All parameters in one contiguous float32 vector `flat`, and views of it by name.

    Gradients and the optimiser's moments have the same layout.
    """

    def __init__(self, config: ModelConfig, flat: Array) -> None:
        if flat.shape != (config.size(),) or flat.dtype != np.float32:
            raise ValueError(f"expected {config.size()} float32 parameters, not {flat.shape}")
        self.config = config
        self.flat = flat
        self.views: Mapping[str, Array] = _views(config, flat)
        self.embedding = self.views["embedding"]
        self.final_norm = self.views["final_norm"]
        self.layers = tuple(
            Layer(*(self.views[f"{i}.{name}"] for name in Layer._fields))
            for i in range(config.layers)
        )

    @classmethod
    def zeros(cls, config: ModelConfig) -> Self:
        return cls(config, np.zeros(config.size(), np.float32))

    @classmethod
    def initial(cls, config: ModelConfig, seed: int) -> Self:
        """Normal with variance 1/fan-in; what writes to the residual stream is scaled down."""
        parameters = cls.zeros(config)
        rng = np.random.default_rng(seed)
        residual = 1 / np.sqrt(2 * config.layers)
        for name, view in parameters.views.items():
            if name.endswith("norm"):
                view[...] = 1
            elif name == "embedding":
                view[...] = 0.02 * rng.standard_normal(view.shape)
            else:
                scale = residual if name.endswith(("attention_out", "down")) else 1.0
                view[...] = scale / np.sqrt(view.shape[0]) * rng.standard_normal(view.shape)
        return parameters

    def copy(self) -> Parameters:
        return Parameters(self.config, self.flat.copy())


def _views(config: ModelConfig, flat: Array) -> dict[str, Array]:
    views: dict[str, Array] = {}
    offset = 0
    for name, shape in config.shapes().items():
        size = int(np.prod(shape))
        views[name] = flat[offset : offset + size].reshape(shape)
        offset += size
    return views


class Rotary:
    """Rotary position embedding (Su et al. 2021), in the half-split layout that Llama uses."""

    def __init__(self, config: ModelConfig) -> None:
        exponent = np.arange(0, config.head_size, 2) / config.head_size
        angles = np.outer(np.arange(config.context_limit), config.rope_theta**-exponent)
        self._cos = np.cos(angles).astype(np.float32)  # [context, head_size / 2]
        self._sin = np.sin(angles).astype(np.float32)

    def rotate(self, x: Array, positions: IntArray, *, backward: bool = False) -> Array:
        """x [N, heads, head_size] turned by its positions [N], or turned back."""
        half = x.shape[-1] // 2
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        if backward:
            sin = -sin
        first, second = x[..., :half], x[..., half:]
        turned = np.empty(x.shape, np.float32)
        turned[..., :half] = first * cos - second * sin
        turned[..., half:] = second * cos + first * sin
        return turned


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
