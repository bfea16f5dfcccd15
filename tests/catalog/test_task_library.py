"""The browser's tasks, without the browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.catalog.sets import load_set
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import discover
from tbtui.config import RunConfig
from tbtui.engines.events_of import task_records
from tbtui.errors import UserError
from tbtui.journal.events import Entry
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.view.fold import Fold
from tbtui.view.tasks import task_tree
from tests.catalog.task_writer import WriteTask
from tests.events import run_started


def test_a_run_that_holds_out_a_task_that_is_gone(write_task: WriteTask, tmp_path: Path) -> None:
    write_task("one")
    config = RunConfig(eval_tasks=("other",), logs_dir=tmp_path)
    with pytest.raises(UserError, match="other"):
        CatalogLibrary([tmp_path], config).entries()


def test_the_browser_and_a_run_list_a_task_under_the_same_category(tmp_path: Path) -> None:
    directories = [tasks_dir() / name for name in ("maze", "starter", "workshop")]
    entries = CatalogLibrary(directories, RunConfig(logs_dir=tmp_path)).entries()
    browsed = {(entry.dataset, entry.name): entry.kind for entry in entries}
    split = split_tasks(discover(tasks_dir()).tasks, eval_split=0.2, seed=0)
    fold = Fold()
    fold.apply(Entry(seq=1, time=0.0, event=run_started(tasks=task_records(split))))
    tree = {
        (task.dataset, task.name): kind.name
        for dataset in task_tree(fold.state)
        for kind in dataset.kinds
        for task in kind.tasks
    }
    assert tree == browsed
    assert "other" not in tree.values()
    assert {"copy", "version-control"} <= set(tree.values())


@pytest.fixture
def versions(write_task: WriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions of a data set, and a task that one of them has alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root = tmp_path / "bench"
    for version in ("2.0", "2.1"):
        for name in ("fix", "sort"):
            write_task(name, root=root / version / "tasks")
    write_task("new", root=root / "2.1" / "tasks")
    return root


@pytest.mark.parametrize("together", [True, False])
def test_tasks_of_one_name_are_apart(versions: Path, tmp_path: Path, together: bool) -> None:
    """In one directory, and in two that each call their data set `tasks`."""
    directories = [versions] if together else [versions / "2.0", versions / "2.1"]
    library = CatalogLibrary(directories, RunConfig(logs_dir=tmp_path / "runs"))
    entries = {(entry.dataset, entry.name): entry.id for entry in library.entries()}
    assert sorted(entries) == [
        ("2.0/tasks", "fix"),
        ("2.0/tasks", "sort"),
        ("2.1/tasks", "fix"),
        ("2.1/tasks", "new"),
        ("2.1/tasks", "sort"),
    ]
    chosen = [entries["2.0/tasks", "fix"], entries["2.1/tasks", "new"]]
    library.save_set("mixed", chosen)
    (saved,) = library.sets()
    assert saved.ids == frozenset(chosen)
    kept = load_set("mixed")
    assert (kept.tasks_dir, kept.tasks) == (versions, ("2.0/tasks/fix", "2.1/tasks/new"))
    split = split_tasks(discover(versions).tasks, eval_split=0, seed=0, train_tasks=["@mixed"])
    assert [str(task.path) for task in split.train] == chosen


def test_a_set_of_one_data_set_has_plain_names(versions: Path, tmp_path: Path) -> None:
    library = CatalogLibrary([versions], RunConfig(logs_dir=tmp_path / "runs"))
    ids = [entry.id for entry in library.entries() if entry.dataset == "2.1/tasks"]
    library.save_set("one", ids)
    assert load_set("one").tasks == ("fix", "new", "sort")
    assert load_set("one").tasks_dir == versions / "2.1" / "tasks"
