"""The agent's time budget: active seconds only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator


class Budget:
    """Active seconds that an agent may use in one trial; they stand still while held.

    An agent that is run several times in a trial (a task of several steps) spends them together.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._timer: asyncio.Timeout | None = None
        self.spent = False
        """The budget ran out."""

    @contextlib.asynccontextmanager
    async def spending(self) -> AsyncIterator[None]:
        """Let the budget run. Raises `TimeoutError` and sets `spent` when it runs out.

        A `TimeoutError` raised inside passes as it is and leaves `spent` alone.
        """
        loop = asyncio.get_running_loop()
        timer = asyncio.timeout_at(loop.time() + self._left)
        self._timer = timer
        try:
            async with timer:
                try:
                    yield
                finally:
                    when = timer.when()
                    if when is not None:
                        self._left = max(0.0, when - loop.time())
        finally:
            self._timer = None
            self.spent = timer.expired()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the clock for as long as the block lasts."""
        timer = self._timer
        when = timer.when() if timer is not None else None
        if timer is None or when is None:
            yield
            return
        loop = asyncio.get_running_loop()
        left = when - loop.time()
        timer.reschedule(None)
        try:
            yield
        finally:
            timer.reschedule(loop.time() + left)
