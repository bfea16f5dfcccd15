from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import IO, Any

import pytest

from tbtui.policies.vllm.policy import VllmPolicy
from tbtui.policies.work import ServerSettings
from tests.policies.served.server import VllmServer

MakePolicy = Callable[..., Awaitable[VllmPolicy]]


@pytest.fixture(scope="module")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(tmp_path_factory.mktemp("vllm") / "server.log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def vllm_server(
    lasting_server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VllmServer]:
    """A server without faults that wants no key."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    yield lasting_server
    lasting_server.reset()


@pytest.fixture
async def make_policy(vllm_server: VllmServer) -> AsyncIterator[MakePolicy]:
    """Makes a started policy on the server; all are closed in the end."""
    made: list[VllmPolicy] = []

    async def make(log: IO[bytes] | None = None, **settings: Any) -> VllmPolicy:
        given: dict[str, Any] = {
            "model_name": "starter",
            "base_url": vllm_server.url,
            "renderer": "embedded",
            **settings,
        }
        policy = VllmPolicy(ServerSettings(**given), log)
        made.append(policy)
        await policy.start()
        return policy

    yield make
    for policy in reversed(made):
        await policy.close()
