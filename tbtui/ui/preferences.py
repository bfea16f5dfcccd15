"""What the app remembers from one time to the next: the theme, the order of the trials, panes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec

from tbtui.view.listing import Order
from tbtui.view.tasks import TreeOrder


class Preferences(msgspec.Struct):
    """How a person left the app."""

    theme: str = ""
    """Empty: none was chosen."""
    order: Order = "place"
    """Of the cockpit's trials."""
    full: int = 0
    """The cockpit's pane that is shown in full, by its number; 0 is the overview."""
    unfolded: list[str] = []
    """Kinds of task whose tasks are shown."""
    folded: list[str] = []
    """Data sets, of several, whose kinds are not shown."""
    tree_order: TreeOrder = "name"
    """Of the tasks."""
    toured: bool = False
    """The first lines of help have been seen."""


def read_preferences(path: Path) -> Preferences:
    """What is remembered. What can't be read, or isn't known, is forgotten."""
    try:
        values = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return Preferences()
    preferences = Preferences()
    for name in Preferences.__struct_fields__:
        if isinstance(values, dict) and name in values:
            with contextlib.suppress(msgspec.ValidationError):
                preferences = _with(preferences, name, values[name])
    return preferences


def _with(preferences: Preferences, name: str, value: Any) -> Preferences:
    return msgspec.convert({**msgspec.structs.asdict(preferences), name: value}, Preferences)


def write_preferences(path: Path, preferences: Preferences) -> None:
    """Remember them. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another app may write at the same moment: one of them wins, and the file is whole.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(preferences), indent=1) + b"\n")
    part.replace(path)
