"""What the policy's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer


@pytest.fixture(scope="session")
def tokenizer() -> LocalTokenizer:
    return LocalTokenizer(TOKENIZER)


@pytest.fixture
def foreign_checkpoint(tmp_path: Path) -> Path:
    """A directory whose policy.npz is something else."""
    directory = tmp_path / "foreign"
    directory.mkdir()
    (directory / "policy.npz").write_bytes(b"PK\x03\x04 not a checkpoint")
    return directory
