"""What a replay's clock is marked with."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tbtui.journal.events import CommandIssued
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.timeline import Timeline, TimelineMarks, read_marks
from tbtui.journal.writer import JournalWriter
from tbtui.ui.panes.clock import mark_columns
from tests.ui.synthetic import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return write_run(tmp_path_factory.mktemp("runs") / "run", 60.0).run


def test_marks_are_what_the_journal_says(run: RunDirectory) -> None:
    marks = read_marks(run)
    kinds = {kind: len(times) for kind, times in marks.times.items()}
    assert kinds["step"] >= 1
    assert kinds["evaluation"] >= 1
    assert kinds["failure"] >= 1
    for times in marks.times.values():
        assert list(times) == sorted(times)


def test_each_mark_has_its_column_and_the_rarest_is_seen() -> None:
    marks = TimelineMarks({"step": (10.0, 20.0), "evaluation": (20.0,), "command": (20.0, 30.4)})
    assert mark_columns(marks, 0.0, 40.0, 41) == {10: "step", 20: "command", 30: "command"}
    assert mark_columns(marks, 0.0, 20.0, 21) == {10: "step", 20: "command"}
    assert mark_columns(marks, 31.0, 40.0, 10) == {}


def test_many_steps_are_thinned_and_common_failures_left_out() -> None:
    every_second = tuple(float(second) for second in range(1, 1001))
    marks = TimelineMarks({"step": every_second, "failure": every_second, "broken": (500.0,)})
    found = mark_columns(marks, 0.0, 1000.0, 101)
    assert set(found.values()) == {"step", "broken"}
    assert [at for at, kind in found.items() if kind == "step"] == [
        *(range(5, 50, 5)),
        *(range(55, 101, 5)),
    ]
    assert set(mark_columns(TimelineMarks({"failure": (500.0,)}), 0.0, 1000.0, 101)) == {50}


def test_a_command_is_found_from_both_sides(run: RunDirectory, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    shutil.copytree(run.path, directory.path)
    with JournalWriter(directory, continues=True) as writer:
        writer.append(CommandIssued(command="c", verb="pause", target="run", actor="ada"))
    with closing(Timeline(directory)) as timeline:
        bounds = timeline.bounds()
        assert bounds is not None
        (given,) = read_marks(directory).times["command"][-1:]
        found = timeline.command(bounds[1] + 1, -1)
        assert found is not None
        assert (found.time, found.text) == (given, "pause")
        assert timeline.command(given, 1) is None
