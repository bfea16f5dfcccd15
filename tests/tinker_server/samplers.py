"""Sampling from snapshots of weights: a few policy processes, each with one snapshot loaded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights that can be sampled from. `version` tells a name that was used again."""

    directory: Path
    version: float = 0.0


@dataclass(slots=True, eq=False)
class _Sampler:
    policy: LocalPolicy
    snapshot: Snapshot
    ready: asyncio.Future[None]
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)


class SamplerPool:
    """At most `size` processes. One without users is given other weights when those are needed."""

    def __init__(self, size: int, log: IO[bytes] | None = None) -> None:
        self._size = size
        self._log = log
        self._samplers: list[_Sampler] = []
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def using(self, snapshot: Snapshot) -> AsyncIterator[LocalPolicy]:
        """A policy whose published and trained weights are `snapshot`'s. Raises `PolicyError`
        when they can't be loaded."""
        sampler = await self._claim(snapshot)
        try:
            await asyncio.shield(sampler.ready)
            yield sampler.policy
        finally:
            sampler.users -= 1
            sampler.last_used = time.monotonic()
            if not sampler.users:
                async with self._freed:
                    self._freed.notify_all()

    async def _claim(self, snapshot: Snapshot) -> _Sampler:
        while True:
            for sampler in self._samplers:
                if sampler.snapshot == snapshot:
                    sampler.users += 1
                    return sampler
            idle = [sampler for sampler in self._samplers if not sampler.users]
            if len(self._samplers) >= self._size and not idle:
                async with self._freed:
                    await self._freed.wait()
                continue
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if len(self._samplers) < self._size:
                policy = LocalPolicy(snapshot.directory, log=self._log)
                sampler = _Sampler(policy, snapshot, ready, users=1)
                self._samplers.append(sampler)
                fresh = True
            else:
                sampler = min(idle, key=lambda each: each.last_used)
                sampler.snapshot, sampler.ready, sampler.users = snapshot, ready, 1
                fresh = False
            try:
                if fresh:
                    await sampler.policy.start()
                else:
                    await sampler.policy.load(snapshot.directory)
            except BaseException as error:
                self._samplers.remove(sampler)
                ready.set_exception(error)
                ready.exception()
                await sampler.policy.close()
                raise
            ready.set_result(None)
            return sampler

    async def close(self) -> None:
        await asyncio.gather(*(sampler.policy.close() for sampler in self._samplers))
        self._samplers.clear()
