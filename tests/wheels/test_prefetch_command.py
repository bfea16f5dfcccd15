"""`tbtui tasks prefetch`: what it says and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tbtui.cli import app
from tbtui.wheels.cache import open_cache
from tests.catalog.task_writer import Files, write_task

pytestmark = pytest.mark.uid


def _prefetch(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tasks", "prefetch", *arguments])


def _tasks(directory: Path, **tests: str) -> Path:
    for name, test in tests.items():
        files: Files = {"tests/test.sh": f"#!/bin/bash\n{test}\n"}
        write_task(directory / "tasks", name, files=files)
    return directory / "tasks"


@pytest.mark.slow
def test_all_is_had_then_nothing_is_left_to_fetch(filled: Path, tmp_path: Path) -> None:
    asks = {"one": "uvx checker==1.0 x", "two": "pip install checker==2.0"}
    first = _prefetch(str(_tasks(tmp_path, **asks, three="pip install no-such-xyz")))
    assert first.exit_code == 1, first.output
    assert "3 sets of packages for 3 tasks" in first.output
    assert "downloaded" in first.output
    said = [line for line in first.output.splitlines() if line.startswith("not had: ")]
    assert len(said) == 1
    assert "no-such-xyz" in said[0]
    assert "1 could not be had" in first.output
    cache = open_cache()
    assert cache is not None
    assert f"1 wheels fetched; {len(cache.wheels)} in all" in first.output
    again = _prefetch(str(_tasks(tmp_path / "again", **asks)))
    assert again.exit_code == 0, again.output
    assert f"0 wheels fetched; {len(cache.wheels)} in all" in again.output


def test_a_dry_run_fetches_nothing(root: Path, tmp_path: Path) -> None:
    tasks = _tasks(tmp_path, one="uvx -p 3.13 checker x\napt-get install -y no-such-debian-xyz")
    result = _prefetch(str(tasks), "--dry-run")
    assert result.exit_code == 0, result.output
    assert "1 for Python 3.13" in result.output
    assert "no-such-debian-xyz (1)" in result.output
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere"),
        (["TASKS", "--python", "three"], "--python three: give a version such as 3.13"),
    ],
)
def test_bad_input_is_one_line(root: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    tasks = str(_tasks(tmp_path, one="true"))
    result = _prefetch(*(tasks if each == "TASKS" else each for each in arguments))
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_manifest_of_another_version_is_refused(root: Path, tmp_path: Path) -> None:
    root.mkdir(parents=True)
    (root / "manifest.json").write_text(json.dumps({"format": 99}))
    result = _prefetch(str(_tasks(tmp_path, one="true")))
    assert result.exit_code == 2
    assert f"delete {root}" in result.stderr


def test_without_uv_it_says_what_to_install(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = _prefetch(str(_tasks(tmp_path, one="true")))
    assert result.exit_code == 1
    assert "pip install uv" in result.stderr
