"""Named sets of tasks, a TOML file each, and the patterns that choose tasks: names, globs, `@SET`.

[set]
tasks_dir = "/home/me/tasks"
tasks = ["copy-01", "copy-02"]
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tbtui.catalog.errors import CatalogError, nearest
from tbtui.user_dirs import config_dir

SET_MARK = "@"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks that were chosen together."""

    name: str
    tasks: tuple[str, ...]
    """Names, in the order that they were saved in."""
    tasks_dir: Path | None = None
    """Where they were chosen from; None: it doesn't say."""


def sets_dir() -> Path:
    return config_dir() / "sets"


def set_names() -> list[str]:
    """Of the saved sets, in alphabetical order."""
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
        f"; there are {', '.join(known)}" if known else "; save one with `tbtui tasks browse`"
    )
    return CatalogError(f"no set {SET_MARK}{name} in {sets_dir()}{hint}")


def _read(name: str, path: Path, document: dict[str, Any]) -> TaskSet:
    table = document.get("set")
    tasks = table.get("tasks") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(tasks, list):
        raise CatalogError(f'{path}: no tasks; a set is [set] and tasks = ["NAME", ...]')
    if not all(isinstance(task, str) for task in tasks):
        raise CatalogError(f"{path}: set.tasks should be texts")
    directory = table.get("tasks_dir")
    if not isinstance(directory, str | None):
        raise CatalogError(f"{path}: set.tasks_dir should be a text")
    return TaskSet(name, tuple(tasks), Path(directory) if directory else None)


def save_set(chosen: TaskSet) -> Path:
    """Write the set, in place of one of the same name; the file's path.

    Raises:
        CatalogError: the name can't be a file's, there are no tasks, or it can't be written.
    """
    path = _path(chosen.name)
    if not chosen.tasks:
        raise CatalogError(f"set {chosen.name}: no task is selected")
    lines = ["[set]"]
    if chosen.tasks_dir is not None:
        lines.append(f"tasks_dir = {json.dumps(str(chosen.tasks_dir), ensure_ascii=False)}")
    names = "".join(f"    {json.dumps(task, ensure_ascii=False)},\n" for task in chosen.tasks)
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text("\n".join([*lines, f"tasks = [\n{names}]\n"]), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise CatalogError(f"{path}: can't be written ({error.strerror})") from error
    return path


def delete_set(name: str) -> None:
    """Whatever its file says: one that can't be used is deleted, too.

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


def choose(names: Sequence[str], patterns: Sequence[str], setting: str) -> frozenset[str]:
    """Which of the tasks called `names` the patterns mean: names, globs (`copy-*`), `@SET`s.

    Raises:
        CatalogError: a pattern means none of them, or a set can't be used; begins with `setting`.
    """
    known = frozenset(names)
    chosen: set[str] = set()
    for pattern in patterns:
        try:
            found = known & _meant(pattern, names)
        except CatalogError as error:
            raise CatalogError(f"{setting}={pattern}: {error}") from error
        if not found:
            raise CatalogError(f"{setting}: no task {pattern!r}{_hint(pattern, names)}")
        chosen |= found
    return frozenset(chosen)


def _meant(pattern: str, names: Sequence[str]) -> frozenset[str]:
    if pattern.startswith(SET_MARK):
        return frozenset(load_set(pattern.removeprefix(SET_MARK)).tasks)
    if is_name(pattern):
        return frozenset({pattern})
    return frozenset(name for name in names if fnmatchcase(name, pattern))


def _hint(pattern: str, names: Sequence[str]) -> str:
    if pattern.startswith(SET_MARK):
        source = load_set(pattern.removeprefix(SET_MARK)).tasks_dir
        return ": none of the set's tasks is here" + (f"; they are of {source}" if source else "")
    return nearest(pattern, list(names)) or "; `tbtui tasks list TASKS_DIR` names those there are"
