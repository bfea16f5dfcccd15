"""Named sets, the patterns that choose tasks, and training on a choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.catalog import CatalogError, fetched_tasks, find_tasks
from tbtui.catalog.sets import TaskSet, choose, delete_set, load_set, save_set, set_names, sets_dir
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import TaskInfo, discover
from tbtui.resources import tasks_dir
from tests.catalog.task_writer import WriteTask

NAMES = {name: f"small/{name}" for name in ("copy-01", "copy-02", "move-01", "wörter")}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def starter() -> tuple[TaskInfo, ...]:
    return discover(tasks_dir() / "starter").tasks


def test_a_set_is_saved_loaded_replaced_and_deleted() -> None:
    assert set_names() == []
    chosen = TaskSet("hard.1", ("wörter", 'odd "name"\\'), Path("/some where/tasks"))
    assert save_set(chosen) == sets_dir() / "hard.1.toml"
    assert load_set("hard.1") == chosen
    save_set(TaskSet("hard.1", ("copy-01",)))
    assert load_set("hard.1") == TaskSet("hard.1", ("copy-01",))
    assert set_names() == ["hard.1"]
    assert [path.name for path in sets_dir().iterdir()] == ["hard.1.toml"]
    delete_set("hard.1")
    assert set_names() == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 65])
def test_a_set_can_not_be_called_what_no_file_should_be_called(name: str) -> None:
    with pytest.raises(CatalogError, match="can't be the name of a set"):
        save_set(TaskSet(name, ("copy-01",)))
    with pytest.raises(CatalogError, match="can't be the name of a set"):
        load_set(name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[set\n", "not TOML"),
        (b"tasks = []\n", r"missing required field `set`; a set is \[set\] and tasks = "),
        (b"[set]\ntasks_dir = '/'\n", "missing required field `tasks`"),
        (b"[set]\ntasks = 'copy-01'\n", "Expected `array`, got `str` - at `\\$.set.tasks`"),
        (b"[set]\ntasks = [1]\n", "Expected `str`, got `int`"),
        (b"[set]\ntasks = ['x']\ntasks_dir = 1\n", "at `\\$.set.tasks_dir`"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_broken_set_says_what_is_wrong(content: bytes, reason: str) -> None:
    sets_dir().mkdir(parents=True)
    (sets_dir() / "broken.toml").write_bytes(content)
    with pytest.raises(CatalogError, match=reason):
        load_set("broken")


def test_tasks_are_chosen_by_names_globs_and_sets() -> None:
    save_set(TaskSet("few", ("move-01", "gone")))
    assert choose(NAMES, ["copy-*"], "tasks") == {"copy-01", "copy-02"}
    assert choose(NAMES, ["@few", "wörter"], "tasks") == {"move-01", "wörter"}
    assert choose(NAMES, ["*"], "tasks") == frozenset(NAMES)
    assert choose(NAMES, ["small/m*", "small/copy-01"], "tasks") == {"move-01", "copy-01"}


def test_a_name_in_two_data_sets_is_given_with_its_data_set() -> None:
    tasks = {name: name for name in ("tb/2.0/fix", "tb/2.1/fix")} | {"only": "tb/2.1/only"}
    assert choose(tasks, ["2.0/fix"], "tasks") == {"tb/2.0/fix"}
    assert choose(tasks, ["tb/2.1/fix", "only"], "tasks") == {"tb/2.1/fix", "only"}
    assert choose(tasks, ["fi*"], "tasks") == {"tb/2.0/fix", "tb/2.1/fix"}
    assert choose(tasks, ["2.1/*"], "tasks") == {"tb/2.1/fix", "only"}
    save_set(TaskSet("both", ("fix",)))
    for pattern in ("fix", "@both"):
        with pytest.raises(CatalogError, match=r"'fix' is in several .*2\.0/fix or tb/2\.1/fix"):
            choose(tasks, [pattern], "tasks")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("copy-1", "tasks: no task 'copy-1'; did you mean 'copy-01'?"),
        ("nested-*", "tasks: no task 'nested-*'; `tbtui tasks list TASKS_DIR` names those there"),
        ("nope", "tasks: no task 'nope'; `tbtui tasks list TASKS_DIR` names those there are"),
        ("@fwe", "no set @fwe in .*; did you mean 'few'?"),
        ("@gone", r"tasks: no task '@gone': none of the set's tasks is here; they are of /else"),
    ],
)
def test_what_means_no_task_is_refused(pattern: str, reason: str) -> None:
    save_set(TaskSet("few", ("move-01",)))
    save_set(TaskSet("gone", ("no-such",), Path("/else")))
    with pytest.raises(CatalogError, match=reason.replace("*'", r"\*'").replace("?", r"\?")):
        choose(NAMES, [pattern], "tasks")


def test_choosing_what_to_train_on_leaves_what_is_held_out() -> None:
    whole = split_tasks(starter(), eval_split=0.2, seed=0)
    some = split_tasks(starter(), eval_split=0.2, seed=0, train_tasks=["copy-*", "move-01"])
    assert some.heldout == whole.heldout
    names = [task.name for task in some.train]
    assert names == [f"copy-0{number}" for number in range(1, 7)] + ["move-01"]
    assert some.refused == ("copy-07", "copy-08", "copy-09")
    assert set(names) < {task.name for task in whole.train}


def test_a_choice_that_leaves_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(CatalogError, match="task 'copy-09' is held out"):
        split_tasks(starter(), eval_split=0.2, seed=0, train_tasks=["copy-09"])
    split = split_tasks(starter(), eval_split=0, seed=0, eval_tasks=["*"], trains=False)
    assert len(split.heldout) == len(starter())


def test_tasks_are_found_by_directory_and_by_name(write_task: WriteTask, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        write_task("one", root=fetched_tasks() / f"bench@{version}")
    write_task("one", root=fetched_tasks() / "other@head")
    assert find_tasks(None) == tasks_dir() / "starter"
    assert find_tasks(tmp_path) == tmp_path
    assert find_tasks(Path("workshop")) == tasks_dir() / "workshop"
    assert find_tasks(Path("bench@2.0")) == fetched_tasks() / "bench@2.0"
    assert find_tasks(Path("other")) == fetched_tasks() / "other@head"
    with pytest.raises(CatalogError, match=r"bench@1\.0 and bench@2\.0; give one"):
        find_tasks(Path("bench"))
    with pytest.raises(CatalogError, match="did you mean 'workshop'"):
        find_tasks(Path("workshpo"))
    with pytest.raises(CatalogError, match="does not exist"):
        find_tasks(tmp_path / "none")
