"""The key table, `keys.toml`: bindings, key bar, help and command palette are made from it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from textual.binding import Binding, BindingType
from textual.keys import format_key

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
    "replay",
    "runs",
    "runs-list",
    "compare",
    "search",
    "hits",
    "library",
    "library-tree",
    "library-preview",
]

Need = Literal["steer", "clock", "return", "tasks", "runs", "files"]
"""What a key is for: to command the run, to move a recorded run's clock, to go back from another
run, to browse tasks, to open other runs, to write files and start programs."""

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
    "replay": "replay",
    "runs": "runs",
    "runs-list": "runs: the list",
    "compare": "comparing two runs",
    "search": "search",
    "hits": "search: matches",
    "library": "task browser",
    "library-tree": "task browser: the tree",
    "library-preview": "task browser: the preview",
}

SCOPE_NEEDS: dict[Scope, Need] = {"steering": "steer", "deciding": "steer", "replay": "clock"}

CLOCKED: frozenset[Scope] = frozenset({"steering", "deciding"})
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
