"""Notes on runs, and other names for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.journal.rundir import (
    RunDirectory,
    RunDirectoryError,
    RunLock,
    add_note,
    find_run,
    read_notes,
    rename_run,
)
from tbtui.view.runs import find_runs, summarise
from tests.events import run_started, write_journal


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_journal(RunDirectory.create(tmp_path / "old"), [run_started()])


def test_notes_are_kept_in_their_order_one_a_line(run: RunDirectory) -> None:
    assert read_notes(run) == []
    add_note(run, "too slow")
    add_note(run, "two\nlines")
    assert [note[17:] for note in read_notes(run)] == ["too slow", "two lines"]


def test_notes_go_through_no_link(run: RunDirectory, tmp_path: Path) -> None:
    (run.path / "notes.txt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunDirectoryError, match=r"notes\.txt"):
        add_note(run, "x")
    assert not (tmp_path / "elsewhere").exists()


def test_what_names_a_renamed_run_finds_it(run: RunDirectory, tmp_path: Path) -> None:
    (run.checkpoints / "step-000003").mkdir()
    new = rename_run(run, "new")
    assert new.path == tmp_path / "new"
    assert find_run("old", tmp_path).path == find_run("new", tmp_path).path == new.path
    assert (tmp_path / "old/checkpoints/step-000003").is_dir()
    assert [each.name for each in find_runs([tmp_path])] == ["new"]
    assert summarise(new).standing == "killed"


def test_a_run_gets_an_earlier_name_back(run: RunDirectory, tmp_path: Path) -> None:
    again = rename_run(rename_run(rename_run(run, "new"), "newer"), "old")
    assert again.path == tmp_path / "old"
    assert not again.path.is_symlink()
    for name in ("new", "newer", "old"):
        assert find_run(name, tmp_path).path == again.path


def test_a_live_run_keeps_its_name(run: RunDirectory, tmp_path: Path) -> None:
    with RunLock(run), pytest.raises(RunDirectoryError, match="live"):
        rename_run(run, "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "-rf", "a\nb", "x" * 200])
def test_a_name_that_no_directory_should_have_is_refused(run: RunDirectory, name: str) -> None:
    with pytest.raises(RunDirectoryError):
        rename_run(run, name)
    assert run.database.is_file()


def test_a_name_that_is_taken_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(RunDirectoryError, match="taken"):
        rename_run(run, "taken")
    assert run.database.is_file()
