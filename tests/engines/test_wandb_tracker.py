"""wandb for real, in its offline mode: what it stored is read back from its own file."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.engines.wandb_tracker import WandbTracker
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

from ..view.story import one_step_run


def records(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes."""
    block, header = 32768, struct.Struct("<IHB")
    data = path.read_bytes()
    at, parts = 7, b""
    while at + header.size <= len(data):
        if block - at % block < header.size:
            at += block - at % block
            continue
        _, size, kind = header.unpack_from(data, at)
        at += header.size
        parts += data[at : at + size]
        at += size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def stored(directory: Path) -> list[dict[str, object]]:
    """The history rows of the one offline run below `directory`."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    rows = []
    for data in records(path):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            rows.append(
                {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
            )
    return rows


def track(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str
) -> tuple[RunDirectory, list[str]]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = RunDirectory.create(tmp_path / "run")
    problems: list[str] = []
    with JournalWriter(run) as writer:
        tracker = WandbTracker(project, RunConfig(), run, problems.append)
        tracker.start()
        for event in one_step_run():
            writer.append(event)
        tracker.close()
    return run, problems


def test_metrics_arrive_in_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, problems = track(tmp_path, monkeypatch, project="demo")
    assert problems == []
    evaluation, step = stored(run.path)
    assert (evaluation["test/pass_rate"], evaluation["step"]) == (0.0, 0)
    assert (step["env/all/reward/total"], step["step"]) == (0.5, 1)


def test_a_failure_of_wandb_is_told_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, problems = track(tmp_path, monkeypatch, project="not/a:name")
    (problem,) = problems
    assert problem.startswith("wandb: ")
    assert problem.endswith("the run goes on without it")
