"""Waiting for what is in another's hands and announces nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SEC = 180.0
"""However busy the machine is. Where the time limit of pytest is shorter, that ends a test."""


async def until(condition: Callable[[], object]) -> None:
    """Until it holds, by what a task, a thread or another process does."""
    async with asyncio.timeout(PATIENCE_SEC):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object], instead: Callable[[], str] = lambda: "") -> None:
    """The same without an event loop; `instead` tells what is where it never holds."""
    deadline = time.monotonic() + PATIENCE_SEC
    while not condition():
        assert time.monotonic() < deadline, f"it never came to be so {instead()}"
        time.sleep(0.02)
