"""An index of this machine, so that nothing here needs a network."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tbtui.wheels.cache import cache_root
from tbtui.wheels.filling import Filled
from tbtui.wheels.requests import PackageRequests, Request
from tests.wheels.index import fill, make_index, use_index


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("index") / "wheels")


@pytest.fixture
def root(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the wheel cache is to lie; uv and pip know that index alone."""
    use_index(index, monkeypatch, tmp_path / "cache")
    return tmp_path / "cache" / "tbtui" / "offline"


@pytest.fixture(scope="session")
def first(index: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Filled]:
    """A cache with `checker==1.0`, filled once for all tests, and what came of the fill.

    It was asked for a package that no index has, too, and there is an index with a password.
    """
    with pytest.MonkeyPatch.context() as patch:
        use_index(index, patch, tmp_path_factory.mktemp("first"))
        patch.delenv("UV_NO_INDEX")
        patch.setenv("UV_INDEX", "https://me:hunter2@127.0.0.1:9/simple")
        asked = PackageRequests({Request(("checker==1.0",)), Request(("missing-xyz",))})
        return cache_root(), asyncio.run(fill(cache_root(), asked)).result


@pytest.fixture
def filled(first: tuple[Path, Filled], root: Path) -> Path:
    """A copy of that cache, where this test's own lies."""
    shutil.copytree(first[0], root, symlinks=True)
    return root
