"""Finds task directories below a directory, at any depth, without reading what is in them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tbtui.catalog.errors import CatalogError

TASK_FILE = "task.toml"
OLD_TASK_FILE = "task.yaml"
"""Of Terminal-Bench's format before Harbor."""

# Beside an instruction, what tells a task that lost its task.toml from any other directory.
_TASK_PARTS = frozenset({"environment", "solution", "tests"})
# Beside a task.yaml, what tells an old task from other programs' files of that name.
_OLD_PARTS = frozenset({"run-tests.sh", "solution.sh", "solution.yaml", "Dockerfile"})
# Installed packages and caches, which can be larger than all tasks together.
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "site-packages"})
_MOST_DIRECTORIES = 100_000
"""Without a task in them; looking through so many takes some ten seconds."""


@dataclass(slots=True)
class Found:
    """What a walk has come by."""

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
        """The directory around the task as seen from the root; the root's own name for its own."""
        if task == self.root:
            return self.root.parent.name
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
