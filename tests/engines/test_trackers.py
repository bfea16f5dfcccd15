"""metrics.jsonl, and what all trackers share: complete, nothing twice, never in the way."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tbtui.config import ConfigError, RunConfig
from tbtui.engines.trackers import (
    MetricsRow,
    RowCounter,
    Tracker,
    check_trackers,
    close_all,
    line,
    trackers_for,
)
from tbtui.journal.events import AnyEvent, Estimate, EvalFinished, StepFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import eval_finished

from ..view.story import entries, one_step_run


def step(number: int, **metrics: float) -> StepFinished:
    return StepFinished(step=number, weights_version=number, metrics=metrics)


def evaluation(number: int, pass_rate: float | None = 0.5) -> EvalFinished:
    return eval_finished(
        number,
        pass_rate,
        scored=4,
        unscored=1,
        by_kind={"copy": 0.5},
        pass_at={4: Estimate(value=0.75, low=0.6, high=0.9)},
    )


def lines(run: RunDirectory) -> list[dict[str, Any]]:
    return [json.loads(each) for each in (run.path / "metrics.jsonl").read_text().splitlines()]


def tracked(run: RunDirectory, config: RunConfig | None = None) -> list[str]:
    """Everything that the journal holds now is handed to every tracker of the config."""
    problems: list[str] = []
    trackers = trackers_for(config or RunConfig(), run, problems.append)
    for tracker in trackers:
        tracker.start()
    # wandb may take long where much else runs; the limit of a test is its own.
    close_all(trackers, patience=1000)
    return problems


def resumed(tmp_path: Path, config: RunConfig) -> RunDirectory:
    """A run that was tracked to its first step, and again to its second."""
    run = RunDirectory.create(tmp_path / "run")
    with JournalWriter(run) as writer:
        writer.append(evaluation(0))
        writer.append(step(1, reward=0.25))
        assert tracked(run, config) == []
        writer.append(step(2, reward=0.5))
        assert tracked(run, config) == []
    return run


def test_metrics_are_lines_of_json(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    problems: list[str] = []
    with JournalWriter(run) as writer:
        (tracker,) = trackers_for(RunConfig(), run, problems.append)
        tracker.start()
        for event in one_step_run():
            writer.append(event)
        tracker.close()
    assert problems == []
    first, second = lines(run)
    assert (first["step"], first["test/pass_rate"], first["test/move/pass_rate"]) == (0, 0.0, 0.0)
    assert (second["step"], second["env/all/reward/total"]) == (1, 0.5)
    assert second["time"] >= first["time"] > 1e9
    assert [path.name for path in run.path.glob("metrics*")] == ["metrics.jsonl"]


def test_a_resumed_run_s_file_is_complete_and_has_nothing_twice(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    with JournalWriter(run) as writer:
        writer.append(step(1, a=1.0))
        assert tracked(run) == []
        # The process was killed while a line was being written, and a step was journalled after.
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2, "a')
        writer.append(step(2, a=2.0))
        writer.append(step(2, a=2.0))
    assert tracked(run) == []
    assert [(each["step"], each["a"]) for each in lines(run)] == [(1, 1.0), (2, 2.0)]


def test_what_is_no_number_is_null_in_the_lines() -> None:
    row = MetricsRow(0, 3, 1000.0, {"a": float("nan"), "b": float("inf"), "c": 1.5})
    assert json.loads(line(row)) == {"step": 3, "time": 1000.0, "a": None, "b": None, "c": 1.5}


def test_rows_have_the_ecosystem_s_names_and_lasting_places() -> None:
    events: list[AnyEvent] = [evaluation(0), step(1, a=1.0), step(1, a=1.0), evaluation(1, None)]
    story = entries(events)
    counter = RowCounter()
    bites = [*counter.rows(story[:1]), *counter.rows(story[1:])]
    assert bites == RowCounter().rows(story)
    assert [(row.index, row.step) for row in bites] == [(0, 0), (1, 1), (2, 1)]
    assert bites[0].values == {
        "test/scored_episodes": 4.0,
        "test/unscored_episodes": 1.0,
        "test/pass_rate": 0.5,
        "test/copy/pass_rate": 0.5,
        "test/pass_at_4": 0.75,
        "test/pass_at_4/low": 0.6,
        "test/pass_at_4/high": 0.9,
    }
    assert "test/pass_rate" not in bites[2].values


class BrokenSink:
    def __init__(self) -> None:
        self.closed = threading.Event()

    def log(self, rows: Sequence[MetricsRow]) -> None:
        raise OSError("no space left on device\nand more about it")

    def close(self) -> None:
        self.closed.set()


def test_a_failure_is_told_once_in_one_line_and_ends_that_tracker_alone(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    sink = BrokenSink()
    problems: list[str] = []
    with JournalWriter(run) as writer:
        writer.append(step(1, a=1.0))
        writer.append(step(2, a=1.0))
        broken = Tracker("broken", lambda: sink, run, problems.append)
        trackers = [broken, *trackers_for(RunConfig(), run, problems.append)]
        for tracker in trackers:
            tracker.start()
        close_all(trackers)
    assert sink.closed.is_set()
    assert problems == ["broken: no space left on device; the run goes on without it"]
    assert len(lines(run)) == 2


def test_a_tracker_that_hangs_is_left_behind(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    release = threading.Event()

    class Hanging(BrokenSink):
        def log(self, rows: Sequence[MetricsRow]) -> None:
            release.wait()

    problems: list[str] = []
    with JournalWriter(run):
        tracker = Tracker("hanging", Hanging, run, problems.append)
        tracker.start()
        close_all([tracker], patience=0.01)
    release.set()
    assert problems == []


@pytest.mark.parametrize(
    ("config", "package", "message"),
    [
        (
            RunConfig(tensorboard=True),
            "tensorboardX",
            "tensorboard=true: tensorboardX is not installed; install tbtui[tensorboard]",
        ),
        (
            RunConfig(trackio_project="demo"),
            "trackio",
            "trackio_project=demo: trackio is not installed; install tbtui[trackio]",
        ),
    ],
)
def test_a_tracker_whose_package_is_missing_is_refused_at_once(
    config: RunConfig, package: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(ConfigError) as refused:
        check_trackers(config)
    assert str(refused.value) == message
    check_trackers(RunConfig(wandb_project="demo"))


# Those of extras, read back from what they stored here


def scalars(run: RunDirectory) -> list[tuple[str, int, float]]:
    from tensorboardX.event_file_writer import EventFileWriter  # noqa: F401 - the writer's own
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (run.path / "tensorboard").glob("events.out.tfevents.*")
    found = []
    for data in tf_records(path.read_bytes()):
        event = Event.FromString(data)
        found += [(each.tag, event.step, each.simple_value) for each in event.summary.value]
    return found


def tf_records(data: bytes) -> Iterator[bytes]:
    """TFRecord: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 12 : at + 12 + size]
        at += 12 + size + 4


@pytest.mark.extras
def test_tensorboard_has_each_scalar_of_a_resumed_run_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra `tensorboard`")
    found = scalars(resumed(tmp_path, RunConfig(tensorboard=True)))
    assert ("test/pass_rate", 0, 0.5) in found
    assert [each for each in found if each[0] == "reward"] == [
        ("reward", 1, 0.25),
        ("reward", 2, 0.5),
    ]


@pytest.fixture
def trackio_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("trackio", reason="needs the extra `trackio`")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    return tmp_path / "trackio" / "demo.db"


@pytest.mark.extras
def test_trackio_has_each_row_of_a_resumed_run_once(tmp_path: Path, trackio_database: Path) -> None:
    resumed(tmp_path, RunConfig(trackio_project="demo"))
    with closing(sqlite3.connect(trackio_database)) as db:
        rows = db.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
    assert [(name, at, json.loads(kept).get("reward")) for name, at, kept in rows] == [
        ("run", 0, None),
        ("run", 1, 0.25),
        ("run", 2, 0.5),
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
