"""The model's shape and its parameters: one flat vector with named views into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


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
