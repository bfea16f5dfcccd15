"""The key table as a person has changed it: `keys.toml`, checked line by line."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from tbtui.ui.input.keys import KEYS, Key, Scope, shown

SCREENS: tuple[tuple[Scope, ...], ...] = (
    ("everywhere", "cockpit", "steering", "trials"),
    ("everywhere", "cockpit", "steering", "tasks"),
    ("everywhere", "cockpit", "steering", "rewards"),
    ("everywhere", "cockpit", "replay", "trials"),
    ("everywhere", "cockpit", "replay", "tasks"),
    ("everywhere", "cockpit", "replay", "rewards"),
    ("everywhere", "cockpit", "steering", "tokens"),
    ("everywhere", "cockpit", "replay", "tokens"),
    ("everywhere", "trial", "steering", "turns"),
    ("everywhere", "trial", "replay", "turns"),
    ("everywhere", "trial", "steering", "tokens"),
    ("everywhere", "trial", "replay", "tokens"),
    ("everywhere", "prompt", "prompt-text"),
    ("everywhere", "typing"),
    ("everywhere", "group", "steering", "siblings"),
    ("everywhere", "group", "replay", "siblings"),
    ("everywhere", "commands"),
    ("everywhere", "review", "deciding", "review-groups"),
    ("everywhere", "review", "deciding", "review-trials"),
    ("everywhere", "review", "replay", "review-groups"),
    ("everywhere", "review", "replay", "review-trials"),
    ("everywhere", "runs", "runs-list"),
    ("everywhere", "compare"),
    ("everywhere", "search", "hits"),
    ("everywhere", "library", "library-tree"),
    ("everywhere", "library", "library-preview"),
)
"""Scopes whose keys work at the same time, a focused pane's last."""

_MODIFIERS = ("ctrl+", "shift+", "alt+")


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The keys in force."""

    keys: tuple[Key, ...] = KEYS
    changed: Mapping[str, str] = field(default_factory=dict)
    """Id -> keys, of those that differ from the app's own; what Textual calls a keymap."""

    def name_of(self, id: str) -> str:
        """The first key of an entry, as people name it: for hints and titles."""
        return self.entry(id).shown.split(" ")[0]

    def entry(self, id: str) -> Key:
        """One entry of the table."""
        (key,) = (key for key in self.keys if key.id == id)
        return key

    def in_scope(self, *scopes: Scope) -> list[Key]:
        """The keys of the scopes, in the table's order."""
        return [key for key in self.keys if key.scope in scopes]


def read_key_table(path: Path) -> tuple[KeyTable, tuple[str, ...]]:
    """The table with a file's changes (`id = "key,key"`), and a line about each that can't be.

    Without the file: the app's own.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return KeyTable(), ()
    except OSError as error:
        return KeyTable(), (f"{path.name}: can't be read ({error.strerror})",)
    except UnicodeDecodeError:
        return KeyTable(), (f"{path.name}: not UTF-8 text",)
    except tomllib.TOMLDecodeError as error:
        return KeyTable(), (f"{path.name}: not TOML ({error})",)
    return _changed(values)


def _changed(values: Mapping[str, object]) -> tuple[KeyTable, tuple[str, ...]]:
    own = {key.id: key for key in KEYS}
    wanted: dict[str, str] = {}
    problems: list[str] = []
    for id, value in values.items():
        if (problem := _problem(own.get(id), value)) is not None:
            problems.append(f"{id}: {problem}")
        else:
            wanted[id] = ",".join(map(_name, _split(str(value))))
    # One that clashes is dropped; then what it clashed with may stand.
    while clash := next(_clashes(wanted), None):
        one, other, key = clash
        problems.append(f"{one}: {shown(key)} is already {other.id} ({other.label})")
        del wanted[one]
    table = tuple(
        replace(key, keys=wanted[key.id], shown=shown(wanted[key.id])) if key.id in wanted else key
        for key in KEYS
    )
    return KeyTable(table, wanted), tuple(problems)


def _problem(key: Key | None, value: object) -> str | None:
    """Return why a line of the file can't be used, or an empty text."""
    if key is None:
        return "unknown id; the help lists the keys"
    if not key.bound:
        return "this key can't be changed"
    if not isinstance(value, str) or not (names := _split(value)):
        return 'write keys as text, like "ctrl+g" or "j,down"'
    unknown = [name for name in names if not _is_key(_name(name))]
    return f"{unknown[0]!r} is not a key" if unknown else None


def _split(text: str) -> list[str]:
    """`"j,down"` as its parts; a comma alone is the comma key."""
    if text.strip() == ",":
        return [","]
    return [part.strip() for part in text.split(",") if part.strip()]


def _name(key: str) -> str:
    """Return Textual's name of a key: `?` is `question_mark`."""
    if len(key) != 1 or key.isalnum():
        return key
    name = unicodedata.name(key, key).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


def _is_key(name: str) -> bool:
    for modifier in _MODIFIERS:
        name = name.removeprefix(modifier)
    return (
        name in {str(key.value) for key in Keys}
        or name in KEY_NAME_REPLACEMENTS.values()
        or key_to_character(name) is not None
    )


def _clashes(wanted: dict[str, str]) -> Iterator[tuple[str, Key, str]]:
    """A changed key, one that works at the same time, and the key that both would have."""
    now = {key.id: set((wanted.get(key.id) or key.keys).split(",")) for key in KEYS}
    scopes = {key.id: key.scope for key in KEYS}
    for id in reversed(wanted):
        for other in KEYS:
            if other.id == id or not _together(scopes[id], other.scope):
                continue
            for key in sorted(now[id] & now[other.id]):
                yield id, other, key


def _together(one: Scope, other: Scope) -> bool:
    if "panes" in (one, other):
        return True  # every screen has panes
    return any(one in screen and other in screen for screen in SCREENS)
