"""An endpoint of one trial."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.endpoint.served import Scripted, Served, served


@pytest.fixture
def handler() -> Scripted:
    return Scripted()


@pytest.fixture
async def here(handler: Scripted) -> AsyncIterator[Served]:
    async with served(handler) as endpoint:
        yield endpoint
