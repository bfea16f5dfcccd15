"""Fixtures for real boxes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tbtui.rollout.environments.choose import HostProbe, probe_host
from tests.rollout.environments.ordinary_user import run_as_ordinary_user

# What has no boxes.
_ANYWHERE = frozenset(
    f"test_{name}.py"
    for name in ("choose", "docker_compose", "docker_host_access", "ledger", "preflight")
)


@pytest.fixture(scope="session")
def this_host() -> HostProbe:
    return probe_host()


@pytest.fixture(autouse=True)
def _namespaces_work(request: pytest.FixtureRequest, this_host: HostProbe) -> None:
    if this_host.namespaces != "usable" and request.path.name not in _ANYWHERE:
        pytest.skip(f"no user namespaces here: {this_host.namespaces_detail}")


@pytest.fixture(autouse=True)
def _own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test's boxes are recorded in a ledger of its own, which must be empty at its end.

    Nor do they see what this user has prefetched.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    assert not list(tmp_path.glob("state/tbtui/boxes/*.json"))


@pytest.fixture
def as_user(tmp_path: Path) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a coroutine function as an ordinary user; skips where the tests run as one anyway."""
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user")
    return lambda body: run_as_ordinary_user(body, tmp_path / "home")


@pytest.fixture(params=["by whom the tests are run", "by an ordinary user"])
def by_anyone(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a coroutine function; and once more, as an ordinary user."""

    async def run(body: Callable[[], Awaitable[None]]) -> None:
        await body()

    if request.param == "by an ordinary user":
        as_user: Callable[[Callable[[], Awaitable[None]]], None]
        as_user = request.getfixturevalue("as_user")
        return as_user
    return lambda body: asyncio.run(run(body))
