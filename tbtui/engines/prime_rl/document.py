"""A TOML document that is being changed, and the list of what became of its keys."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tbtui.config import ConfigError

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one key of a file."""

    old: str
    new: str | None
    """Its new name; none: it is gone; the same as before: only its value changes."""
    reason: str

    def __str__(self) -> str:
        """`old key -> new key: reason`, in one line."""
        return f"{self.old} -> {self.new or '(gone)'}: {self.reason}"


class Document:
    """Dotted names lead to values; tables on the way are made as they are needed."""

    def __init__(self, toml: Mapping[str, Any]) -> None:
        self.root: Table = copy.deepcopy(dict(toml))
        self.changes: list[Change] = []

    def table(self, path: str) -> Table | None:
        """The table of that name, if there is one.

        Raises:
            ConfigError: there is something else.
        """
        node: Table = self.root
        for place, key in _steps(path):
            if key not in node:
                return None
            below = node[key]
            if not isinstance(below, dict):
                raise ConfigError(f"{place}: should be a table")
            node = below
        return node

    def tables(self, path: str) -> list[Table]:
        """The list of tables of that name; empty: there is none.

        Raises:
            ConfigError: there is something else.
        """
        value = self.get(path)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise ConfigError(f"{path}: should be a list of tables, as [[{path}]] makes it")
        return value

    def get(self, path: str) -> Any:
        """The value, or None."""
        place, _, key = path.rpartition(".")
        table = self.table(place)
        return None if table is None else table.get(key)

    def set(self, path: str, value: Any) -> None:
        place, _, key = path.rpartition(".")
        node = self.root
        for _, step in _steps(place):
            node = node.setdefault(step, {})
        node[key] = value

    def pop(self, path: str) -> Any:
        """Take the value out, if it is there; else None."""
        place, _, key = path.rpartition(".")
        table = self.table(place)
        return None if table is None else table.pop(key, None)

    def has(self, path: str) -> bool:
        place, _, key = path.rpartition(".")
        table = self.table(place)
        return table is not None and key in table

    def record(self, old: str, new: str | None, reason: str) -> None:
        """List a change. If a key was moved to `old` before, both moves become one entry."""
        for index, before in enumerate(self.changes):
            if before.new == old != before.old:
                way = reason if reason == before.reason else f"{before.reason}; {reason}"
                self.changes[index] = Change(before.old, new, way)
                return
        self.changes.append(Change(old, new, reason))

    def drop(self, path: str, reason: str) -> None:
        """Take the key out, if it is there."""
        if self.has(path):
            self.pop(path)
            self.record(path, None, reason)

    def move(
        self, old: str, new: str, reason: str, convert: Callable[[Any], Any] | None = None
    ) -> None:
        """Rename the key, if it is there. What already stands under the new name stays."""
        if not self.has(old):
            return
        if self.has(new):
            self.drop(old, f"{new} is there already")
            return
        value = self.pop(old)
        self.set(new, value if convert is None else convert(value))
        self.record(old, new, reason)

    def move_table(self, old: str, new: str | None, reason: str) -> None:
        """Move each key of a table, or drop it where there is no `new` place.

        Raises:
            ConfigError: there is something else.
        """
        table = self.table(old)
        if table is None:
            return
        if new is None:
            for key in list(table):
                self.drop(f"{old}.{key}", reason)
        elif not table:  # that it is there says something
            if self.table(new) is None:
                self.set(new, {})
            self.record(old, new, reason)
        else:
            for key in list(table):
                self.move(f"{old}.{key}", f"{new}.{key}", reason)
        self.remove_empty(old)

    def remove_empty(self, path: str) -> None:
        """Remove a table that nothing is left in."""
        if self.get(path) == {}:
            self.pop(path)


def _steps(path: str) -> list[tuple[str, str]]:
    """(the dotted name so far, its last part) of each part."""
    parts = path.split(".") if path else []
    return [(".".join(parts[: n + 1]), part) for n, part in enumerate(parts)]
