"""An index of this machine, so that nothing here needs a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels.index import make_index, use_index


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("index") / "wheels")


@pytest.fixture
def root(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the wheel cache is to lie; uv and pip know that index alone."""
    use_index(index, monkeypatch, tmp_path / "cache")
    return tmp_path / "cache" / "tbtui" / "offline"
