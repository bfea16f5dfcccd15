"""The tree of tasks: data sets, kinds, tasks, how each has gone, and in which order."""

from __future__ import annotations

from tbtui.journal.events import AnyEvent, PhaseSeconds, TaskRecord
from tbtui.view.fold import Fold
from tbtui.view.listing import Filter, Listing
from tbtui.view.state import RunState
from tbtui.view.tasks import TreeOrder, task_tree
from tbtui.vocabulary import Purpose
from tests.events import eval_finished, run_started, trial_finished, trial_queued

from .story import entries, folded

TASKS: dict[str, tuple[str, str, Purpose]] = {
    "copy-1": ("files", "copy", "train"),
    "copy-9": ("files", "copy", "eval"),
    "move-1": ("files", "move", "train"),
    "copy-db": ("tables", "copy", "train"),
    "join-10": ("tables", "join", "train"),
    "join-2": ("tables", "join", "eval"),
}
"""Name -> data set, kind, use. Both data sets have a kind of the same name."""


def trial(task: str, reward: float | None, seconds: float) -> list[AnyEvent]:
    name = f"{task}-{reward}-{seconds}"
    return [
        trial_queued(name, label=f"{task}/1", task=task, group="g", step=1),
        trial_finished(name, reward, seconds=PhaseSeconds(sampling=seconds)),
    ]


def held_out(task: str) -> list[AnyEvent]:
    """A trial of an evaluation, failed."""
    name = f"{task}-held-out"
    queued = trial_queued(name, label=f"{task}/1", task=task, group="e", step=1, purpose="eval")
    return [queued, trial_finished(name, 0.0)]


def state(*, datasets: bool = True) -> RunState:
    tasks = tuple(
        TaskRecord(name=name, kind=kind, split=use, dataset=of if datasets else "")
        for name, (of, kind, use) in TASKS.items()
    )
    return folded(
        run_started(run="r", tasks_dir="/data/both", tasks=tasks),
        *trial("copy-1", 1.0, 2.0),
        *trial("copy-1", 0.0, 4.0),
        *trial("move-1", 1.0, 9.0),
        *trial("copy-db", 0.0, 1.0),
        *trial("join-10", None, 1.0),
        eval_finished(
            1,
            0.75,
            scored=2,
            by_kind={"copy": 0.5, "join": 1.0},
            by_dataset={"files": 0.5, "tables": 1.0} if datasets else {},
            by_task={"copy-9": 0.5, "join-2": 1.0},
        ),
    )


def test_what_is_of_two_data_sets_stays_apart() -> None:
    files, tables = task_tree(state())
    assert (files.name, tables.name) == ("files", "tables")
    assert [kind.name for kind in files.kinds] == ["copy", "move"]
    assert [kind.name for kind in tables.kinds] == ["copy", "join"]
    assert [task.name for task in tables.kinds[1].tasks] == ["join-2", "join-10"]
    assert (files.recent_rate, files.trend) == (2 / 3, [1.0, 0.0, 1.0])
    assert (tables.recent_rate, tables.trend) == (0.0, [0.0])
    assert [kind.recent_rate for kind in files.kinds] == [0.5, 1.0]
    assert [kind.recent_rate for kind in tables.kinds] == [0.0, None]
    assert (files.held_out_rate, tables.held_out_rate) == (0.5, 1.0)
    assert [kind.held_out_rate for kind in (*files.kinds, *tables.kinds)] == [0.5, None, None, 1.0]
    assert (files.flake_rate, tables.flake_rate) == (0.0, 0.5)
    assert files.seconds == 5.0


def test_held_out_trials_tell_only_of_kinds_that_are_never_trained_on() -> None:
    fold = Fold(state())
    for task in ("copy-9", "join-2"):
        fold.apply_all(entries(held_out(task)))
    files, tables = task_tree(fold.state)
    assert (files.kinds[0].name, files.kinds[0].recent_rate) == ("copy", 0.5)
    # `join` has a training task, of which no trial has a reward yet.
    assert (tables.kinds[1].name, tables.kinds[1].recent_rate) == ("join", None)
    fold.state.tasks["join-10"].split = "eval"
    assert task_tree(fold.state)[1].kinds[1].recent_rate == 0.0


def test_a_run_of_one_data_set_is_named_for_its_directory() -> None:
    (tree,) = task_tree(state(datasets=False))
    assert (tree.name, tree.dataset, tree.held_out_rate) == ("both", "", 0.75)
    assert [kind.name for kind in tree.kinds] == ["copy", "join", "move"]
    assert tree.kinds[0].held_out_rate == 0.5


def test_orders_put_what_is_not_known_last() -> None:
    def kinds(order: TreeOrder) -> list[str]:
        found = task_tree(state(), order)
        return [f"{kind.dataset} {kind.name}" for each in found for kind in each.kinds]

    assert kinds("name") == ["files copy", "files move", "tables copy", "tables join"]
    assert kinds("worst") == ["tables copy", "tables join", "files copy", "files move"]
    assert kinds("flaky") == ["tables join", "tables copy", "files copy", "files move"]
    assert kinds("slow") == ["files move", "files copy", "tables copy", "tables join"]


def test_the_grid_can_show_one_data_set_alone() -> None:
    shown = state()
    listing = Listing()

    def names() -> set[str]:
        return {each.task for each in listing.chosen_from([], shown, None, shown.time)}

    listing.by_task(dataset="tables")
    assert names() == {"copy-db", "join-10"}
    assert listing.filter.in_words == "tables"
    listing.by_task(kind="copy", dataset="files")
    assert (names(), listing.filter.in_words) == ({"copy-1"}, "files copy")
    listing.by_task(kind="copy", dataset="files")
    assert listing.filter == Filter()
