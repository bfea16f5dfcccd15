"""TensorBoard files, read back from disk; where the extra is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

from .test_trackers import evaluation, step, tracked

pytest.importorskip("tensorboardX")


def scalars(run: RunDirectory) -> list[tuple[str, int, float]]:
    from tensorboardX.event_file_writer import EventFileWriter  # noqa: F401 - the writer's own
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (run.path / "tensorboard").glob("events.out.tfevents.*")
    found = []
    for data in records(path.read_bytes()):
        event = Event.FromString(data)
        found += [(each.tag, event.step, each.simple_value) for each in event.summary.value]
    return found


def records(data: bytes) -> Iterator[bytes]:
    """TFRecord: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 12 : at + 12 + size]
        at += 12 + size + 4


def test_scalars_arrive_and_a_resumed_run_has_each_once(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    config = RunConfig(tensorboard=True)
    with JournalWriter(run) as writer:
        writer.append(evaluation(0))
        writer.append(step(1, reward=0.25))
        assert tracked(run, config) == []
        writer.append(step(2, reward=0.5))
        assert tracked(run, config) == []
    found = scalars(run)
    assert ("test/pass_rate", 0, 0.5) in found
    assert [each for each in found if each[0] == "reward"] == [
        ("reward", 1, 0.25),
        ("reward", 2, 0.5),
    ]
