from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tbtui.policies.tinker.policy import TinkerPolicy
from tbtui.policies.tinker.training_run import TinkerSettings
from tests.tinker_server.faults import Faults
from tests.tinker_server.server import TinkerServer
from tests.tinker_server.settings import ServerSettings

MakePolicy = Callable[..., Awaitable[TinkerPolicy]]


@pytest.fixture(scope="module")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    settings = ServerSettings(tmp_path_factory.mktemp("tinker"))
    server = TinkerServer(settings, Faults())
    server.start()
    yield server
    asyncio.run(server.kill())


@pytest.fixture
def tinker_server(
    lasting_server: TinkerServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TinkerServer]:
    """A server without faults, and a key for it."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    yield lasting_server
    lasting_server.faults.clear()


@pytest.fixture
async def make_policy(tinker_server: TinkerServer, tmp_path: Path) -> AsyncIterator[MakePolicy]:
    """Makes a started policy on the server; all are closed in the end."""
    made: list[TinkerPolicy] = []

    with (tmp_path / "policy.log").open("ab") as log:

        async def make(resume: Path | None = None, **settings: Any) -> TinkerPolicy:
            given: dict[str, Any] = {
                "model_name": "starter",
                "base_url": tinker_server.url,
                "renderer": "embedded",
                "run_name": "a run",
                **settings,
            }
            policy = TinkerPolicy(TinkerSettings(**given), log)
            made.append(policy)
            await policy.start(resume)
            return policy

        yield make
        for policy in reversed(made):
            await policy.close()
