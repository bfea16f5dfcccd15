"""The key table, `keys.toml`, with a person's changes; bindings and help are made from it."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, format_key, key_to_character

Scope = Literal[
    "everywhere",
    "panes",
    "words",
    "steering",
    "cockpit",
    "trials",
    "tasks",
    "rewards",
    "trial",
    "typing",
    "turns",
    "tokens",
    "prompt",
    "prompt-text",
    "group",
    "siblings",
    "commands",
    "review",
    "review-groups",
    "review-trials",
    "deciding",
    "diagnosis",
    "replay",
    "runs",
    "runs-list",
    "compare",
    "charts",
    "chart-metrics",
    "search",
    "hits",
    "settings",
    "settings-list",
    "library",
    "library-tree",
    "library-preview",
    "fleet",
]

Need = Literal["steer", "paced", "clock", "return", "tasks", "runs", "files", "settings", "fleet"]
"""What a key is for: to command the run, to end its slow beginning, to move a recorded run's clock,
to go back from another run, to browse tasks, to open other runs, to write files and start programs,
to show settings, to choose among all runs in the fleet's own app."""

SCOPE_TITLES: dict[Scope, str] = {
    "everywhere": "everywhere",
    "panes": "a pane that scrolls",
    "words": "typing a filter or a search",
    "steering": "the selected or opened trial",
    "cockpit": "cockpit",
    "trials": "trials",
    "tasks": "tasks",
    "rewards": "rewards",
    "trial": "trial",
    "typing": "typing in a trial (all other keys go to its terminal)",
    "turns": "turns",
    "tokens": "tokens",
    "prompt": "prompt",
    "prompt-text": "prompt: its text",
    "group": "group",
    "siblings": "siblings",
    "commands": "history of commands",
    "review": "review of a step",
    "review-groups": "review: the groups",
    "review-trials": "review: a group's trials",
    "deciding": "review: decisions",
    "diagnosis": "diagnosis",
    "replay": "replay",
    "runs": "runs",
    "runs-list": "runs: the list",
    "compare": "comparing two runs",
    "charts": "charts",
    "chart-metrics": "charts: the metrics",
    "search": "search",
    "hits": "search: matches",
    "settings": "settings",
    "settings-list": "settings: the list",
    "library": "task browser",
    "library-tree": "task browser: the tree",
    "library-preview": "task browser: the preview",
    "fleet": "fleet",
}

SCOPE_NEEDS: dict[Scope, Need] = {
    "steering": "steer",
    "deciding": "steer",
    "replay": "clock",
    "fleet": "fleet",
}

CLOCKED: frozenset[Scope] = frozenset({"steering", "deciding", "diagnosis"})
"""A screen with one of these shows a moment of the run: a recorded one's clock has its keys there.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that a key does."""

    id: str
    scope: Scope
    keys: str
    """Textual's names of the keys, separated by commas."""
    shown: str
    """The names for people."""
    action: str
    label: str
    """One or two words, for the key bar."""
    help: str
    bar: int = 0
    """Its rank in the key bar: 1 stays longest when room is short; 0 is never there."""
    palette: bool = True
    """Whether the command palette has it."""
    priority: bool = False
    bound: bool = True
    """False: Textual binds it itself."""
    own_need: Need | None = None
    """Beside what its scope needs."""

    @property
    def need(self) -> Need | None:
        """Return what the key needs to be available: see `tbtui.ui.input.abilities`."""
        return self.own_need or SCOPE_NEEDS.get(self.scope)


def shown(keys: str) -> str:
    """Textual's names of keys, as people name them: `ctrl+g,down` is `^g ↓`."""
    return " ".join(_shown(key) for key in keys.split(","))


def _shown(key: str) -> str:
    modifiers, plus, last = key.rpartition("+")
    name = last if last == "enter" else format_key(last)
    return f"^{name}" if modifiers == "ctrl" else f"{modifiers}{plus}{name}"


def _read(path: Path) -> Iterator[Key]:
    for id, values in tomllib.loads(path.read_text("utf-8")).items():
        yield Key(id, **{"shown": shown(values["keys"]), **values})


KEYS: tuple[Key, ...] = tuple(_read(Path(__file__).with_name("keys.toml")))


def bindings(*scopes: Scope) -> list[BindingType]:
    """Textual's bindings of the scopes."""
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.priority, id=key.id)
        for key in KEYS
        if key.scope in scopes and key.bound
    ]


def bindings_of(*ids: str) -> list[BindingType]:
    """Textual's bindings of single keys, for an app that has only some of a scope."""
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.priority, id=key.id)
        for key in KEYS
        if key.id in ids
    ]


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
    ("everywhere", "diagnosis"),
    ("everywhere", "diagnosis", "replay"),
    ("everywhere", "runs", "runs-list"),
    ("everywhere", "compare"),
    ("everywhere", "charts", "chart-metrics"),
    ("everywhere", "search", "hits"),
    ("everywhere", "settings", "settings-list"),
    ("everywhere", "library", "library-tree"),
    ("everywhere", "library", "library-preview"),
    ("everywhere", "fleet"),
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
