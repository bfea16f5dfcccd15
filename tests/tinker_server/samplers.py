"""Sampling from weights on disk: one policy process, with one directory of them loaded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tbtui.policies.local.client import LocalPolicy

_BLOCK = 16


class PrefixCache:
    """How many tokens of a prompt an engine with a cache of blocks would have at hand."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def hit(self, prompt: Sequence[int]) -> int:
        """Tokens in cached blocks; the last token is always computed anew."""
        cached = 0
        for end, key in _prefixes(prompt):
            if key not in self._known or end >= len(prompt):
                break
            cached = end
        return cached

    def add(self, tokens: Sequence[int]) -> None:
        self._known.update(key for _, key in _prefixes(tokens))


def _prefixes(tokens: Sequence[int]) -> list[tuple[int, int]]:
    """The end of every whole block, and a key of all that comes before it."""
    key = 0
    found = []
    for end in range(_BLOCK, len(tokens) + 1, _BLOCK):
        key = hash((key, *tokens[end - _BLOCK : end]))
        found.append((end, key))
    return found


class Sampler:
    """A policy process, which is given the weights that are asked for."""

    def __init__(self) -> None:
        self._policy: LocalPolicy | None = None
        self._weights: Path | None = None
        self._users = 0
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def using(self, weights: Path) -> AsyncIterator[LocalPolicy]:
        """A policy whose published and trained weights are those. Raises `PolicyError` when they
        can't be loaded."""
        async with self._freed:
            await self._freed.wait_for(lambda: not self._users or self._weights == weights)
            policy = await self._with(weights)
            self._users += 1
        try:
            yield policy
        finally:
            async with self._freed:
                self._users -= 1
                self._freed.notify_all()

    async def _with(self, weights: Path) -> LocalPolicy:
        if self._policy is None:
            policy = LocalPolicy(weights)
            await policy.start()
            self._policy = policy
        elif weights != self._weights:
            self._weights = None
            await self._policy.load(weights)
        self._weights = weights
        return self._policy

    async def close(self) -> None:
        if self._policy is not None:
            await self._policy.close()
