"""Trackio for real: what it stored here is read back, where the extra is installed."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

from .test_trackers import step, tracked


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    return tmp_path / "trackio" / "demo.db"


def test_metrics_arrive_and_a_resumed_run_has_each_once(tmp_path: Path, stored: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    config = RunConfig(trackio_project="demo")
    with JournalWriter(run) as writer:
        writer.append(step(1, reward=0.25))
        assert tracked(run, config) == []
        writer.append(step(2, reward=0.5))
        assert tracked(run, config) == []
    with closing(sqlite3.connect(stored)) as db:
        rows = db.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
    assert [(name, at, json.loads(kept)["reward"]) for name, at, kept in rows] == [
        ("run", 0, 0.25),
        ("run", 1, 0.5),
    ]


def test_what_trackio_dies_of_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "trackio.py").write_text(
        "def init(**settings):\n    raise SystemExit('no such project')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"), prepend=os.pathsep)
    run = RunDirectory.create(tmp_path / "run")
    with JournalWriter(run) as writer:
        writer.append(step(1, reward=0.25))
        problems = tracked(run, RunConfig(trackio_project="demo"))
    assert problems == ["trackio: no such project; the run goes on without it"]
