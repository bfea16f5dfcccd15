"""Keys and values of sequences that are over, for prompts that begin like them: a trial's next
turn, and the other trials of its group. Bounded in bytes; what was used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tbtui.policies.torch.slots import Prefix, longest_common

_SHORTEST = 16
"""Fewer tokens are computed sooner than looked for and copied."""


class Prefixes:
    """Keys and values of prompts, for one version of the weights: others give other ones."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes."""
        self._limit = limit
        self._size = 0
        self._held: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size

    def add(self, tokens: Sequence[int], prefix: Prefix) -> None:
        """Hold the `prefix` of these tokens, in place of what they begin with."""
        ids = tuple(tokens)
        if prefix.size > self._limit:
            return
        for known in [each for each in self._held if ids[: len(each)] == each]:
            self._drop(known)
        self._held[ids] = prefix
        self._size += prefix.size
        while self._size > self._limit:
            self._drop(next(iter(self._held)))

    def find(self, tokens: Sequence[int]) -> tuple[int, Prefix | None]:
        """How many first ones of these tokens are held, and the prefix that has them."""
        ids = tuple(tokens)
        length = 0
        found: tuple[int, ...] | None = None
        for known in self._held:
            common = longest_common(known, ids)
            if common > length:
                length, found = common, known
        if found is None or length < _SHORTEST:
            return 0, None
        self._held.move_to_end(found)
        return length, self._held[found]

    def clear(self) -> None:
        self._held.clear()
        self._size = 0

    def _drop(self, ids: tuple[int, ...]) -> None:
        self._size -= self._held.pop(ids).size
