"""Fixtures of the catalog's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.task_writer import MINIMAL_TOML, Files, WriteTask, write_task


@pytest.fixture(name="write_task")
def write_task_fixture(tmp_path: Path) -> WriteTask:
    """`write_task` below the test's own directory, unless `root` says otherwise."""

    def write(
        name: str,
        toml: str | None = MINIMAL_TOML,
        files: Files | None = None,
        root: Path = tmp_path,
    ) -> Path:
        return write_task(root, name, toml, files)

    return write
