"""Fixtures for real boxes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tbtui.rollout.environments.choose import probe_host
from tests.rollout.environments.ordinary_user import run_as_ordinary_user


@pytest.fixture(scope="session", autouse=True)
def _namespaces_work() -> None:
    host = probe_host()
    if host.namespaces != "usable":
        pytest.skip(f"no user namespaces here: {host.namespaces_detail}")


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
