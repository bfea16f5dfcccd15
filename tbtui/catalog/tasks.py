"""Finds Harbor tasks below a directory, at any depth, and says what is wrong with those that can't
be used."""

from __future__ import annotations

import errno
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tbtui.catalog import CatalogError, nearest
from tbtui.catalog.load import Defect, TaskInfo, load_task
from tbtui.catalog.sets import matching
from tbtui.invocation import to_type
from tbtui.paths import PathError, expanded_user

__all__ = ["Catalog", "CatalogError", "Defect", "TaskInfo", "discover", "nearest"]

_FILES_NAMED = 3
_DATASETS_NAMED = 6

TASK_FILE = "task.toml"
OLD_TASK_FILE = "task.yaml"
"""The file of a task in Terminal-Bench's format before Harbor."""

# Beside an instruction, marks a task that lost its task.toml.
_TASK_PARTS = frozenset({"environment", "solution", "tests"})
# Beside a task.yaml, marks an old task: other programs have files of that name.
_OLD_PARTS = frozenset({"run-tests.sh", "solution.sh", "solution.yaml", "Dockerfile"})
# Installed packages and caches, which can be larger than all tasks together.
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "site-packages"})
_MOST_DIRECTORIES = 100_000
"""Without a task in them; looking through so many takes some ten seconds."""


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
                f"see `{to_type('tasks', 'check', self.directory)}`"
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
        root = root.resolve() if ".." in root.parts else root
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


@dataclass(slots=True)
class Found:
    """The tasks, old tasks and other files that a walk found."""

    root: Path
    tasks: list[Path] = field(default_factory=list)
    """Directories of tasks, or of what looks like a task without its task.toml."""
    old: list[Path] = field(default_factory=list)
    """Directories of tasks in the old format."""
    searched: int = 0
    """Directories that are no tasks."""
    files: Counter[str] = field(default_factory=Counter)
    """Those of the searched directories by their suffix (or name, without one)."""

    def dataset(self, task: Path) -> str:
        """The directory around the task as seen from the root; the root's own name for its own,
        and for itself, where it is a task."""
        if task == self.root:
            return self.root.name
        inner = task.parent.relative_to(self.root).as_posix()
        return self.root.name if inner == "." else inner


def walk(root: Path) -> Found:
    """Look for tasks in `root` and below, in the order of names.

    A task's own directories are not searched, nor hidden ones, nor installed packages. A link to a
    directory is followed unless the directory is found without it too.

    Raises:
        CatalogError: there are far too many directories.
        OSError: `root` can't be read.
    """
    found = Found(root)
    _list(root)  # a directory below that can't be read is passed over, this one is not
    seen: set[tuple[int, int]] = set()
    links: list[Path] = []
    _search(root, found, seen, links)
    for link in links:  # grows while it is gone through
        _search(link, found, seen, links)
    found.tasks.sort(key=lambda path: (path.parent, path.name))
    found.old.sort()
    return found


def _search(start: Path, found: Found, seen: set[tuple[int, int]], links: list[Path]) -> None:
    waiting = [start]
    while waiting:
        directory = waiting.pop()
        try:
            status = directory.stat()
            if (key := (status.st_dev, status.st_ino)) in seen:
                continue
            seen.add(key)
            entries = _list(directory)
        except PermissionError:
            found.tasks.append(directory)  # it might be one: loading it says that it can't be read
            continue
        except OSError:
            continue
        names = frozenset(entry.name for entry in entries)
        if TASK_FILE in names or ("instruction.md" in names and names & _TASK_PARTS):
            found.tasks.append(directory)
            continue
        if OLD_TASK_FILE in names and names & _OLD_PARTS:
            found.old.append(directory)
            continue
        found.searched += 1
        if found.searched > _MOST_DIRECTORIES:
            raise CatalogError(
                f"{found.root} holds more than {_MOST_DIRECTORIES:,} directories that are no tasks:"
                " set tasks_dir to one nearer to the tasks"
            )
        waiting += _inner(directory, entries, found, links)


def _inner(
    directory: Path, entries: Iterable[os.DirEntry[str]], found: Found, links: list[Path]
) -> Iterator[Path]:
    """Directories to look through next; links are kept for later."""
    for entry in entries:
        name = entry.name
        if not _is_directory(entry):
            found.files[Path(name).suffix or name] += 1
        elif name.startswith(".") or name in _PASSED_OVER:
            continue
        elif entry.is_symlink():
            if not found.root.is_relative_to((directory / name).resolve()):  # it would lead back
                links.append(directory / name)
        else:
            yield directory / name


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a cycle of links
        return False


def _list(directory: Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
