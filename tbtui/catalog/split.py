"""Divides tasks into those that train and those held out for evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tbtui.catalog import CatalogError
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.sets import choose


@dataclass(frozen=True, slots=True)
class Split:
    """Tasks by use, each part in the catalog's order.

    `unused` holds tasks declared held out that an explicit list of evaluation tasks leaves out:
    they are not evaluated, and must not be trained on either. `refused` holds the
    names that were chosen to train and are held out.
    """

    train: tuple[TaskInfo, ...]
    heldout: tuple[TaskInfo, ...]
    unused: tuple[TaskInfo, ...] = ()
    refused: tuple[str, ...] = ()
    honeypots: tuple[TaskInfo, ...] = ()
    """Impossible variants of training tasks, which train among them."""

    def __post_init__(self) -> None:
        kept_out = {task.name for task in (*self.heldout, *self.unused)}
        paths = {task.path.resolve() for task in (*self.heldout, *self.unused)}
        for task in self.train:
            if task.name in kept_out or task.path.resolve() in paths:
                raise CatalogError(
                    f"task {task.name!r} would be trained on and held out: remove its second copy"
                )


def split_tasks(
    tasks: Sequence[TaskInfo],
    *,
    eval_split: float,
    seed: int,
    eval_tasks: Sequence[str] = (),
    train_tasks: Sequence[str] = (),
    trains: bool = True,
) -> Split:
    """Splits `tasks`.

    What `eval_tasks` names (as `choose` reads it) is held out, and that alone (tasks declared
    held out still never train). Without it each data set in which some task declares
    `[metadata] split` is divided as declared, its undeclared tasks training; from each other data
    set the fraction `eval_split`, in [0, 1), is held out, chosen by `seed`. What is left trains,
    or of that only what `train_tasks` names: choosing what to train on changes nothing of what is
    held out, so that evaluations of different choices can be compared.

    A task's place in a chosen split depends on its own name and `seed` alone, so adding tasks
    moves no other (but for the one that is picked where a small data set would else have none).

    Raises:
        CatalogError: `eval_split` out of range, an unknown name, or nothing left to train on
            (unless it `trains` nothing anyway).
    """
    if not 0 <= eval_split < 1:
        raise CatalogError(
            f"eval_split is {eval_split:g}: give a fraction of at least 0 and less than 1"
        )
    names = {task.name: task.full_name for task in tasks}
    if eval_tasks:
        heldout = choose(names, eval_tasks, "eval_tasks")
    else:
        heldout = frozenset[str]().union(
            *(_of_dataset(dataset, eval_split, seed) for dataset in _datasets(tasks))
        )
    declared = frozenset(task.name for task in tasks if task.split == "heldout")
    may_train = [task for task in tasks if task.name not in heldout | declared]
    chosen = choose(names, train_tasks, "tasks") if train_tasks else frozenset(names)
    split = Split(
        train=tuple(task for task in may_train if task.name in chosen),
        heldout=tuple(task for task in tasks if task.name in heldout),
        unused=tuple(task for task in tasks if task.name in declared - heldout),
        refused=tuple(
            name for name in names if train_tasks and name in chosen & (heldout | declared)
        ),
    )
    if trains and not split.train:
        raise CatalogError(_nothing_left(tasks, split))
    return split


def _nothing_left(tasks: Sequence[TaskInfo], split: Split) -> str:
    if split.refused:
        which = f"task {split.refused[0]!r} is" if len(split.refused) == 1 else "all of them are"
        return (
            f"tasks: {which} held out, and none is left to train on: choose others, "
            "or hold out others with eval_tasks"
        )
    return (
        f"all {len(tasks)} tasks are held out, none is left to train on: "
        "lower eval_split, or list fewer eval_tasks"
    )


def _datasets(tasks: Sequence[TaskInfo]) -> list[list[TaskInfo]]:
    groups: dict[str, list[TaskInfo]] = {}
    for task in tasks:
        groups.setdefault(task.dataset, []).append(task)
    return list(groups.values())


def _of_dataset(dataset: Sequence[TaskInfo], eval_split: float, seed: int) -> frozenset[str]:
    """Names of the held-out tasks of one data set."""
    if any(task.split is not None for task in dataset):
        return frozenset(task.name for task in dataset if task.split == "heldout")
    if eval_split == 0 or len(dataset) < 2:
        return frozenset()
    # By the short name: a task's place stays when another data set with the same name is added,
    # and two versions of a task stand on the same side.
    ranks = {task.name: _rank(task.short_name, seed) for task in dataset}
    chosen = {name for name, rank in ranks.items() if rank < eval_split}
    first, last = min(ranks, key=ranks.__getitem__), max(ranks, key=ranks.__getitem__)
    # Both parts get at least one task, however small the data set.
    return frozenset(chosen | {first}) - {last}


def _rank(name: str, seed: int) -> float:
    """A number in [0, 1), uniform over names, the same on every machine."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
