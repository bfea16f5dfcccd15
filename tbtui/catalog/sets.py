"""Named sets of tasks, a TOML file each, and the patterns that choose tasks: names, globs, `@SET`.

[set]
tasks_dir = "/home/me/tasks"
tasks = ["copy-01", "copy-02"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from tbtui.catalog import CatalogError, nearest
from tbtui.invocation import to_type
from tbtui.paths import config_dir, replace_file

SET_MARK = "@"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks that were chosen together."""

    name: str
    tasks: tuple[str, ...]
    """Names, in the order that they were saved in; `DATASET/NAME` where the name is not enough."""
    tasks_dir: Path | None = None
    """Where they were chosen from; None: it doesn't say."""


class _Table(msgspec.Struct):
    tasks: tuple[str, ...]
    tasks_dir: str | None = None


class _Document(msgspec.Struct):
    set: _Table


def sets_dir() -> Path:
    return config_dir() / "sets"


def set_names() -> list[str]:
    """Names of the saved sets, in alphabetical order."""
    return sorted(path.stem for path in sets_dir().glob("*.toml") if _NAME.fullmatch(path.stem))


def load_set(name: str) -> TaskSet:
    """A saved set.

    Raises:
        CatalogError: there is none of that name, or its file can't be used.
    """
    path = _path(name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _no_such(name) from error
    except OSError as error:
        raise CatalogError(f"{path}: can't be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path}: not TOML ({error})") from error
    return _read(name, path, document)


def _no_such(name: str) -> CatalogError:
    known = set_names()
    hint = nearest(name, known) or (
        f"; there are {', '.join(known)}"
        if known
        else f"; save one with `{to_type('tasks', 'browse')}`"
    )
    return CatalogError(f"no set {SET_MARK}{name} in {sets_dir()}{hint}")


def _read(name: str, path: Path, document: dict[str, Any]) -> TaskSet:
    try:
        table = msgspec.convert(document, _Document).set
    except msgspec.ValidationError as error:
        raise CatalogError(
            f'{path}: {error}; a set is [set] and tasks = ["NAME", ...], perhaps with tasks_dir'
        ) from error
    return TaskSet(name, table.tasks, Path(table.tasks_dir) if table.tasks_dir else None)


def save_set(chosen: TaskSet) -> Path:
    """Write the set, in place of one of the same name; the file's path.

    Raises:
        CatalogError: the name can't be a file's, there are no tasks, or it can't be written.
    """
    path = _path(chosen.name)
    if not chosen.tasks:
        raise CatalogError(f"set {chosen.name}: no task is selected")
    table: dict[str, Any] = {"tasks": chosen.tasks}
    if chosen.tasks_dir is not None:
        table = {"tasks_dir": str(chosen.tasks_dir), **table}
    try:
        replace_file(path, tomli_w.dumps({"set": table}).encode())
    except OSError as error:
        raise CatalogError(f"{path}: can't be written ({error.strerror})") from error
    return path


def delete_set(name: str) -> None:
    """Delete a set, also one whose file can't be read.

    Raises:
        CatalogError: there is none of that name, or it can't be removed.
    """
    path = _path(name)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise _no_such(name) from error
    except OSError as error:
        raise CatalogError(f"{path}: can't be removed ({error.strerror})") from error


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise CatalogError(
            f"{name!r} can't be the name of a set: letters, digits and . _ - , at most 64"
        )
    return sets_dir() / f"{name}.toml"


def is_name(pattern: str) -> bool:
    """Whether a pattern is one task's name: neither a glob nor a set."""
    return not pattern.startswith(SET_MARK) and not _GLOB.search(pattern)


def matching(tasks: Mapping[str, str], pattern: str) -> frozenset[str]:
    """Which of the tasks (name -> full name) a name or a glob means.

    What it has of `/` is matched against the ends of the full names, part by part: `copy-*`,
    `tb2/*`, `datasets/tb2/fix-git`. A plain name means one task, or is refused.

    Raises:
        CatalogError: tasks of several data sets have the plain name.
    """
    if is_name(pattern):
        return _called(tasks, pattern)
    parts = pattern.split("/")
    return frozenset(name for name, full in tasks.items() if _fits(full, parts))


def _called(tasks: Mapping[str, str], wanted: str) -> frozenset[str]:
    parts = wanted.split("/")
    for name, full in tasks.items():
        if wanted in (name, full):
            return frozenset({name})
    found = [name for name, full in tasks.items() if full.split("/")[-len(parts) :] == parts]
    if len(found) > 1:
        ways = [tasks[name] for name in found]
        more = f" or {len(ways) - 3} others" if len(ways) > 3 else ""
        raise CatalogError(
            f"task {wanted!r} is in several data sets: give {' or '.join(ways[:3])}{more}"
        )
    return frozenset(found)


def _fits(full_name: str, pattern: Sequence[str]) -> bool:
    end = full_name.split("/")[-len(pattern) :]
    return len(end) == len(pattern) and all(map(fnmatchcase, end, pattern))


def choose(tasks: Mapping[str, str], patterns: Sequence[str], setting: str) -> frozenset[str]:
    """Which tasks (name -> full name) the patterns mean: names, globs (`copy-*`), `@SET`s.

    Raises:
        CatalogError: a pattern means none of them, or a name several, or a set can't be used;
            begins with `setting`.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        try:
            found = _meant(pattern, tasks)
        except CatalogError as error:
            raise CatalogError(f"{setting}={pattern}: {error}") from error
        if not found:
            raise CatalogError(f"{setting}: no task {pattern!r}{_hint(pattern, list(tasks))}")
        chosen |= found
    return frozenset(chosen)


def _meant(pattern: str, tasks: Mapping[str, str]) -> frozenset[str]:
    if not pattern.startswith(SET_MARK):
        return matching(tasks, pattern)
    names = load_set(pattern.removeprefix(SET_MARK)).tasks
    return frozenset[str]().union(*(_called(tasks, name) for name in names))


def _hint(pattern: str, names: Sequence[str]) -> str:
    if pattern.startswith(SET_MARK):
        source = load_set(pattern.removeprefix(SET_MARK)).tasks_dir
        return ": none of the set's tasks is here" + (f"; they are of {source}" if source else "")
    return (
        nearest(pattern, names)
        or f"; `{to_type('tasks', 'list', 'TASKS_DIR')}` names those there are"
    )
