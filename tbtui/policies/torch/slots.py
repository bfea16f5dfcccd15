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
from transformers.cache_utils import Cache

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
class SlotPlaces:
    """Where the tokens of one forward go: `rows` slots [R], `columns` [R, Q]; `width` columns are
    read. `first`: the slots are 0 to R - 1, so that none is copied to be read."""

    rows: torch.Tensor
    columns: torch.Tensor
    width: int
    first: bool


class Slots(Cache):
    """The cache that a model's forward is given; `place` is set before each.

    Per layer, keys and values are [slots, heads, columns, head size].
    """

    place: SlotPlaces

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._slots = 0
        self._columns = 0
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int,
        *args: Any, **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Add a layer's new keys and values; returns all that the queries may see."""
        place = self.place
        if layer_idx == len(self._keys):
            self._add_layer(key_states, value_states)
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        rows = place.rows[:, None]
        keys[rows, :, place.columns] = key_states.transpose(1, 2)
        values[rows, :, place.columns] = value_states.transpose(1, 2)
        keys, values = keys[:, :, : place.width], values[:, :, : place.width]
        if place.first:
            return keys[: len(place.rows)], values[: len(place.rows)]
        return keys[place.rows], values[place.rows]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.place.width

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for so many; what is there stays. Out of memory, it can be asked for again."""
        if columns > self._columns:
            wanted = max(columns, self._columns + self._columns // 4)
            columns = -(-wanted // _ROOM_STEP) * _ROOM_STEP
        slots, columns = max(slots, self._slots), max(columns, self._columns)
        # One tensor at a time: all of them would be twice the memory.
        for states in (self._keys, self._values):
            for layer, old in enumerate(states):
                if old.shape[0] < slots or old.shape[2] < columns:
                    states[layer] = old.new_zeros((slots, old.shape[1], columns, old.shape[3]))
                    states[layer][: old.shape[0], :, : old.shape[2]] = old
        self._slots, self._columns = slots, columns

    def swap(self, one: int, other: int, columns: int) -> None:
        """Exchange what two slots have in their first columns."""
        if one == other:
            return
        for states in (*self._keys, *self._values):
            kept = states[one, :, :columns].clone()
            states[one, :, :columns] = states[other, :, :columns]
            states[other, :, :columns] = kept

    def take(self, slot: int, columns: int) -> Prefix:
        """A copy of the slot's first columns."""
        return Prefix(
            tuple(keys[slot, :, :columns].clone() for keys in self._keys),
            tuple(values[slot, :, :columns].clone() for values in self._values),
        )

    def put(self, slot: int, prefix: Prefix, columns: int) -> None:
        """Fill the slot's first columns from a prefix of as many or more, which this cache had."""
        for all_states, parts in ((self._keys, prefix.keys), (self._values, prefix.values)):
            for states, part in zip(all_states, parts, strict=True):
                states[slot, :, :columns] = part[:, :columns]

    def copy(self, source: int, slot: int, columns: int) -> None:
        """Fill the slot's first columns from another slot's."""
        for states in (*self._keys, *self._values):
            states[slot, :, :columns] = states[source, :, :columns]

    def _add_layer(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Room for a layer whose states look like these, [*, heads, *, head size]."""
        # Zeros: a masked column's value is multiplied by 0, and must be finite.
        for states, like in ((self._keys, keys), (self._values, values)):
            states.append(
                like.new_zeros((self._slots, like.shape[1], self._columns, like.shape[3]))
            )


class Masks:
    """Attention masks of a model for rows of different lengths."""

    def __init__(self, config: Any) -> None:
        """
        Raises:
            ValueError: the model has layers that are no attention to earlier tokens.
        """
        types: set[str] = set(getattr(config, "layer_types", None) or ())
        unknown = types - {"full_attention", "sliding_attention"}
        if unknown or getattr(config, "num_kv_shared_layers", None):
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
