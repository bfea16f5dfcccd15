"""Finds Harbor tasks in a directory and says what is wrong with those that can't be used."""

from __future__ import annotations

import errno
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.catalog.errors import CatalogError, nearest
from tbtui.catalog.load import Defect, TaskInfo, load_task
from tbtui.catalog.sets import matching
from tbtui.catalog.walk import OLD_TASK_FILE, TASK_FILE, Found, walk
from tbtui.paths import PathError, expanded_user

__all__ = ["Catalog", "CatalogError", "Defect", "TaskInfo", "discover", "nearest"]

_FILES_NAMED = 3
_DATASETS_NAMED = 6


@dataclass(frozen=True, slots=True)
class Catalog:
    """The usable tasks of a directory, ordered by data set and name, and every defect found."""

    directory: Path
    tasks: tuple[TaskInfo, ...]
    defects: tuple[Defect, ...]
    datasets: tuple[tuple[str, int], ...] = ()
    """How many tasks were found in each data set, the broken ones included."""
    notes: tuple[str, ...] = ()
    """What else is there: tasks in the old format, with the command that converts them."""

    @property
    def found(self) -> int:
        """How many tasks there are, the broken ones included."""
        return sum(count for _, count in self.datasets)

    @property
    def where(self) -> str:
        """Where the tasks were found: `5 tasks in DIRECTORY: 3 in a, 2 in b/c`."""
        said = f"{self.found:,} task{'s' * (self.found != 1)} in {self.directory}"
        most = sorted(self.datasets, key=lambda each: -each[1])[:_DATASETS_NAMED]
        if len(self.datasets) < 2 and most[0][0] == self.directory.name:
            return said
        named = [f"{count:,} in {name}" for name, count in most]
        if more := len(self.datasets) - len(most):
            named.append(f"and {more} more data sets")
        return f"{said}: {', '.join(named)}"

    def require_tasks(self) -> tuple[TaskInfo, ...]:
        """The usable tasks.

        Raises:
            CatalogError: every task found is broken.
        """
        if not self.tasks:
            first = self.defects[0]
            more = f" (and {len(self.defects) - 1} more)" if len(self.defects) > 1 else ""
            raise CatalogError(
                f"no usable task in {self.directory}: {first.where}: {first.message}{more}; "
                f"see `tbtui tasks check {self.directory}`"
            )
        return self.tasks

    def task(self, name: str) -> TaskInfo:
        """The usable task called `name`, or `DATASET/NAME`.

        Raises:
            CatalogError: there is none, or several data sets have it; the message names the
                nearest, or all of them.
        """
        try:
            found = matching({task.name: task.full_name for task in self.tasks}, name)
        except CatalogError as error:
            raise CatalogError(f"{error} ({self.directory})") from error
        for task in self.tasks:
            if task.name in found:
                return task
        hint = nearest(name, [task.name for task in self.tasks])
        raise CatalogError(f"no task {name!r} in {self.directory}{hint}")


def discover(
    directory: Path, tell: Callable[[int, int], None] = lambda done, total: None
) -> Catalog:
    """Reads every task in `directory` or below: a task, a data set, a repository of data sets.

    A broken task is listed among the defects and left out; the others stay usable. The order
    depends on names only. `tell` is called with how many tasks are read, of how many.

    Raises:
        CatalogError: `directory` is missing, unreadable, no directory, or holds no task at all.
    """
    try:
        root = expanded_user(directory).absolute()
    except PathError as error:
        raise CatalogError(str(error)) from error
    try:
        found = walk(root)
    except OSError as error:
        raise CatalogError(_unreadable(root, error)) from error
    if not found.tasks:
        raise CatalogError(_nothing_in(found))
    tasks: list[TaskInfo] = []
    defects: list[Defect] = []
    named = list(_named(found))
    for done, (name, dataset, path) in enumerate(named, 1):
        task, task_defects = load_task(path, dataset, name)
        defects += task_defects
        if task is not None:
            tasks.append(task)
        tell(done, len(named))
    counts = Counter(dataset for _, dataset, _ in named)
    return Catalog(
        root,
        tuple(tasks),
        tuple(defects),
        datasets=tuple(sorted(counts.items())),
        notes=tuple(_old_tasks(found)),
    )


def _named(found: Found) -> Iterable[tuple[str, str, Path]]:
    """Name, data set and directory of each task, by data set and name."""
    datasets = {path.parent: found.dataset(path) for path in found.tasks}
    # The root's own name may be that of a directory in it, too.
    if list(datasets.values()).count(found.root.name) > 1:
        datasets[found.root] = "."
    placed = sorted((datasets[path.parent], path.name, path) for path in found.tasks)
    times = Counter(name for _, name, _ in placed)
    for dataset, name, path in placed:
        yield (name if times[name] == 1 else f"{dataset}/{name}"), dataset, path


def _old_tasks(found: Found) -> Iterable[str]:
    for home, count in Counter(path.parent for path in found.old).items():
        tasks = "a task" if count == 1 else f"{count:,} tasks"
        yield (
            f"{home}: {tasks} in Terminal-Bench's old format ({OLD_TASK_FILE}): {_conversion(home)}"
        )


def _conversion(directory: Path) -> str:
    """The command for all old tasks of a directory, or for one."""
    # Old tasks say nothing of memory, and converted compose files ask for it.
    target = directory.with_name(f"{directory.name}-harbor")
    return (
        f"convert with `harbor task migrate -i {shlex.quote(str(directory))}"
        f" -o {shlex.quote(str(target))} --cpus 1 --memory-mb 2048`"
    )


def _nothing_in(found: Found) -> str:
    looked = f"no tasks in {found.root}: "
    if found.old:
        homes = list(dict.fromkeys(path.parent for path in found.old))
        one = found.old == [found.root]
        more = f" (and {len(homes) - 1} more such directories)" if len(homes) > 1 else ""
        tasks = "a task" if len(found.old) == 1 else f"{len(found.old):,} tasks"
        what = f"it is {tasks}" if one else tasks
        return (
            f"{looked}{what} in Terminal-Bench's old format ({OLD_TASK_FILE}):"
            f" {_conversion(found.root if one else homes[0])}{more}"
        )
    directories = (
        "it" if found.searched < 2 else f"it and the {found.searched - 1:,} directories below it"
    )
    kinds = [f"{count:,} {name}" for name, count in found.files.most_common(_FILES_NAMED)]
    there = f"files there are {', '.join(kinds)}" if kinds else "there is no file at all"
    return (
        f"{looked}looked for {TASK_FILE} (Harbor's format) in {directories}; {there}"
        " (set tasks_dir to a directory of tasks)"
    )


_REASONS: dict[int | None, Literal["does not exist", "is not a directory", "is not readable"]] = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "is not a directory",
    errno.EACCES: "is not readable",
}


def _unreadable(directory: Path, error: OSError) -> str:
    reason = _REASONS.get(error.errno, error.strerror or "can't be read")
    return (
        f"tasks directory {directory} {reason}: "
        "set tasks_dir to a directory of tasks in Harbor's format"
    )
