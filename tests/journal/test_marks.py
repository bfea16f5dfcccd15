"""What a replay's clock is marked with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tbtui.journal.events import CommandIssued
from tbtui.journal.timeline import Marks, Timeline, read_marks
from tbtui.journal.writer import JournalWriter
from tests.ui.synthetic import write_run


def test_marks_are_what_the_journal_says(tmp_path: Path) -> None:
    state = write_run(tmp_path / "run", 60.0)
    marks = read_marks(state.run)
    kinds = {kind: len(times) for kind, times in marks.times.items()}
    assert kinds["step"] >= 1
    assert kinds["evaluation"] >= 1
    assert kinds["failure"] >= 1
    for times in marks.times.values():
        assert list(times) == sorted(times)


def test_each_mark_has_its_column_and_the_rarest_is_seen() -> None:
    marks = Marks({"step": (10.0, 20.0), "evaluation": (20.0,), "command": (20.0, 30.4)})
    assert marks.columns(0.0, 40.0, 41) == {10: "step", 20: "command", 30: "command"}
    assert marks.columns(0.0, 20.0, 21) == {10: "step", 20: "command"}
    assert marks.columns(31.0, 40.0, 10) == {}


def test_many_steps_are_thinned_and_common_failures_left_out() -> None:
    every_second = tuple(float(second) for second in range(1, 1001))
    marks = Marks({"step": every_second, "failure": every_second, "broken": (500.0,)})
    found = marks.columns(0.0, 1000.0, 101)
    assert set(found.values()) == {"step", "broken"}
    assert [at for at, kind in found.items() if kind == "step"] == [
        *(range(5, 50, 5)),
        *(range(55, 101, 5)),
    ]
    assert set(Marks({"failure": (500.0,)}).columns(0.0, 1000.0, 101)) == {50}


def test_a_command_is_found_from_both_sides(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", 60.0).run
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
