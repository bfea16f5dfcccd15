"""Puts a sampling engine that shares the trainer's GPU to sleep while the trainer computes.

The engine gives its memory back when something is to be trained and nothing is being drawn; it is
woken for the next completion or publication, once the trainer is done and has let go of what it
doesn't need.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from tbtui.policies.base import PolicyError, PolicyLostError
from tbtui.policies.torch.sampling import SamplingEngine


class Sleeper:
    """Knows what is trained and drawn at a moment. Orders pass in the order in which they came."""

    def __init__(self, engine: SamplingEngine, release: Callable[[], Awaitable[object]]) -> None:
        """`release`: has the trainer give back the GPU memory that it doesn't use."""
        self._engine = engine
        self._release = release
        self._can = engine.sleeps
        self._asleep = False
        self._training = 0
        self._drawing = 0
        self._rested = asyncio.Event()
        self._rested.set()
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def training(self, *, needs_memory: bool = True) -> AsyncIterator[None]:
        """The trainer has an order; with `needs_memory` the engine sleeps meanwhile, if it can."""
        async with self._turn:
            self._training += 1
            self._rested.clear()
            if needs_memory and self._can and not self._asleep and not self._drawing:
                await self._fall_asleep()
        try:
            yield
        finally:
            self._training -= 1
            if not self._training:
                self._rested.set()

    @contextlib.asynccontextmanager
    async def drawing(self) -> AsyncIterator[None]:
        """The engine is awake within.

        Raises:
            PolicyLostError: it doesn't wake up.
        """
        self._drawing += 1
        try:
            while self._asleep:
                await self._rested.wait()
                async with self._turn:
                    if self._asleep and not self._training:
                        await self._wake()
            yield
        finally:
            self._drawing -= 1

    async def _fall_asleep(self) -> None:
        try:
            await self._engine.sleep()
            self._asleep = True
        except PolicyLostError:
            raise
        except PolicyError:
            self._can = False  # it trains beside the engine, as it would without this

    async def _wake(self) -> None:
        await self._release()
        try:
            await self._engine.wake()
        except PolicyError as error:
            raise PolicyLostError(str(error)) from error
        self._asleep = False
