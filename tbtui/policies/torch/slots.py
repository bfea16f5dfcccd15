"""Keys and values of the completions that are computed together, a slot each.

transformers' own caches grow by a token for all rows at once, so rows of different lengths are
padded on the left and none can join or leave. Here a token at position p of a row always lies in
column p of the row's slot: rows have lengths of their own, and what a slot holds can be taken out
(`Prefix`) and put into another one. Masks say which columns a query sees; layers with a sliding
window keep all columns, so that a prefix can be reused there too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_ROOM_STEP = 256
"""Columns are added so many at a time, or a quarter more than there are."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of some first tokens of a sequence, per layer: [heads, tokens, head size]."""

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(each.numel() * each.element_size() for each in (*self.keys, *self.values))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tokens of one forward go: `rows` slots [R], `columns` [R, Q]; `width` columns are
    read. `first`: the slots are 0 to R - 1, so that none is copied to be read."""

    rows: torch.Tensor
    columns: torch.Tensor
    width: int
    first: bool


class _SlotLayer(CacheLayerMixin):
    """One layer: keys and values [slots, heads, columns, head size]."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, owner: Slots) -> None:
        super().__init__()
        self._owner = owner

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        # Zeros: a masked column's value is multiplied by 0, and must be finite.
        shape = (self._owner.slots, key_states.shape[1], self._owner.columns)
        self.keys = key_states.new_zeros((*shape, key_states.shape[3]))
        self.values = value_states.new_zeros((*shape, value_states.shape[3]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        place = self._owner.place
        rows = place.rows[:, None]
        self.keys[rows, :, place.columns] = key_states.transpose(1, 2)
        self.values[rows, :, place.columns] = value_states.transpose(1, 2)
        if place.first:
            count = len(place.rows)
            return self.keys[:count, :, : place.width], self.values[:count, :, : place.width]
        return (
            self.keys[:, :, : place.width][place.rows],
            self.values[:, :, : place.width][place.rows],
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.place.width, 0

    def get_seq_length(self) -> int:
        return self._owner.place.width

    def get_max_length(self) -> int:
        return -1


class Slots(Cache):
    """The cache that a model's forward is given; `place` is set before each."""

    layers: list[_SlotLayer]
    place: Place

    def __init__(self, layers: int) -> None:
        self.slots = 0
        self.columns = 0
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for so many; what is there stays. Out of memory, it can be asked for again."""
        if columns > self.columns:
            wanted = max(columns, self.columns + self.columns // 4)
            columns = -(-wanted // _ROOM_STEP) * _ROOM_STEP
        slots, columns = max(slots, self.slots), max(columns, self.columns)
        # One tensor at a time: all of them would be twice the memory.
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys = _grown(layer.keys, slots, columns)
                layer.values = _grown(layer.values, slots, columns)
        self.slots, self.columns = slots, columns

    def swap(self, one: int, other: int, columns: int) -> None:
        """Exchange what two slots have in their first columns."""
        if one == other:
            return
        for layer in self.layers:
            if layer.is_initialized:
                for states in (layer.keys, layer.values):
                    kept = states[one, :, :columns].clone()
                    states[one, :, :columns] = states[other, :, :columns]
                    states[other, :, :columns] = kept

    def take(self, slot: int, columns: int) -> Prefix:
        """A copy of the slot's first columns."""
        return Prefix(
            tuple(layer.keys[slot, :, :columns].clone() for layer in self.layers),
            tuple(layer.values[slot, :, :columns].clone() for layer in self.layers),
        )

    def put(self, slot: int, prefix: Prefix, columns: int) -> None:
        """Fill the slot's first columns from a prefix that has as many or more."""
        for layer, keys, values in zip(self.layers, prefix.keys, prefix.values, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys[None], values[None])
            layer.keys[slot, :, :columns] = keys[:, :columns]
            layer.values[slot, :, :columns] = values[:, :columns]

    def copy(self, source: int, slot: int, columns: int) -> None:
        """Fill the slot's first columns from another slot's."""
        for layer in self.layers:
            layer.keys[slot, :, :columns] = layer.keys[source, :, :columns]
            layer.values[slot, :, :columns] = layer.values[source, :, :columns]


def _grown(old: torch.Tensor, slots: int, columns: int) -> torch.Tensor:
    if old.shape[0] >= slots and old.shape[2] >= columns:
        return old
    new = old.new_zeros((slots, old.shape[1], columns, old.shape[3]))
    new[: old.shape[0], :, : old.shape[2]] = old
    return new


class Masks:
    """Attention masks of a model for rows of different lengths."""

    def __init__(self, config: Any) -> None:
        """
        Raises:
            ValueError: the model has layers that are no attention to earlier tokens.
        """
        types = set(getattr(config, "layer_types", None) or ())
        unknown = types - {"full_attention", "sliding_attention"}
        if unknown or getattr(config, "num_kv_shared_layers", 0):
            what = ", ".join(sorted(unknown)) or "layers that share keys and values"
            raise ValueError(f"the model has {what}")
        self._by_type = "sliding_attention" in types
        window = getattr(config, "sliding_window", None)
        self._window: int | None = window
        # Without a list of types, a model with a window has it in every layer (Mistral).
        self._all_sliding = not types and window is not None
        self._additive = config._attn_implementation == "eager"

    def of(
        self, columns: torch.Tensor, width: int, dtype: torch.dtype
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """What the model's forward takes as `attention_mask` for queries at `columns` [R, Q]:
        [R, 1, Q, width], or that per type of layer."""
        keys = torch.arange(width, device=columns.device)
        seen = keys <= columns[:, None, :, None]
        if self._window is None:
            full = near = self._shaped(seen, dtype)
        else:
            full = self._shaped(seen, dtype)
            near = self._shaped(seen & (keys > columns[:, None, :, None] - self._window), dtype)
        if self._by_type:
            return {"full_attention": full, "sliding_attention": near}
        return near if self._all_sliding else full

    def _shaped(self, seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not self._additive:
            return seen
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(
            ~seen, torch.finfo(dtype).min
        )


def longest_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first items two sequences of one type share."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    # Slices are compared at the speed of C, items are not.
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
