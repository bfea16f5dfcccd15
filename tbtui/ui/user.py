"""A person's settings, keys and themes, and what the app remembers from one time to the next."""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from tbtui.paths import replace_file
from tbtui.ui.input.keys import KeyTable, read_key_table
from tbtui.view.groups import Order
from tbtui.view.tasks import TreeOrder

FASTEST = 10
"""Frames a second at most; also what is normal."""
SLOW = 2
"""Frames a second over a slow link."""

Notify = Literal["desktop", "bell", "none"]


class AppSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's settings."""

    notify: Notify = "desktop"
    """When the run needs a person: a notification of the terminal (OSC 9) and its bell, the bell
    alone, or nothing."""
    fps: str | int = "normal"
    """Frames a second: `low` for slow links, `normal`, or a number from 1 to 10."""

    def __post_init__(self) -> None:
        frames_per_second(str(self.fps))


def frames_per_second(text: str) -> int:
    """`low`, `normal`, or a number. Raises `ValueError`: one line that says what may be."""
    match text:
        case "low":
            return SLOW
        case "normal":
            return FASTEST
    if text.isdecimal() and 1 <= int(text) <= FASTEST:
        return int(text)
    raise ValueError(f"fps: {text!r} is not low, normal or a number from 1 to {FASTEST}")


def read_settings(path: Path) -> tuple[AppSettings, tuple[str, ...]]:
    """Read a person's settings; with a line on why the file can't be used they are the app's."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), AppSettings), ()
    except FileNotFoundError:
        return AppSettings(), ()
    except OSError as error:
        problem = f"can't be read ({error.strerror})"
    except UnicodeDecodeError:
        problem = "not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        problem = f"not TOML ({error})"
    except msgspec.ValidationError as error:
        problem = str(error)
    return AppSettings(), (f"{path.name}: {problem}",)


class Preferences(msgspec.Struct):
    """What the app remembers of how a person left it."""

    theme: str = ""
    """Empty: none was chosen."""
    order: Order = "attention"
    """Order of the cockpit's groups."""
    full: int = 0
    """The cockpit's pane that is shown in full, by its number; 0 is the overview."""
    unfolded: list[str] = []
    """Kinds of task whose tasks are shown."""
    folded: list[str] = []
    """Data sets, of several, whose kinds are not shown."""
    tree_order: TreeOrder = "name"
    """Order of the tasks."""
    curves: list[str] = []
    """Metrics that the cockpit's curves show in place of their own choice."""
    toured: bool = False
    """The first lines of help have been seen."""


def read_preferences(path: Path) -> Preferences:
    """Read preferences; what can't be read, or isn't known, is forgotten."""
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
    """Write preferences. Raises `OSError`."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(preferences), indent=1) + b"\n")


@dataclass(frozen=True, slots=True)
class User:
    """A person's choices for the app; by default the app's own, and nothing is remembered."""

    settings: AppSettings = field(default_factory=AppSettings)
    keys: KeyTable = field(default_factory=KeyTable)
    theme_dirs: tuple[Path, ...] = ()
    """Their own themes."""
    preferences: Preferences = field(default_factory=Preferences)
    """They change as the app is used."""
    remembered_in: Path | None = None
    """The file of the preferences."""
    problems: tuple[str, ...] = ()
    """A line about each thing in their files that can't be followed."""

    @classmethod
    def load(cls, config: Path, state: Path) -> User:
        """Read `app.toml`, `keys.toml` and `themes/` in `config`, and `app.json` in `state`."""
        settings, setting_problems = read_settings(config / "app.toml")
        keys, key_problems = read_key_table(config / "keys.toml")
        return cls(
            settings,
            keys,
            (config / "themes",),
            read_preferences(state / "app.json"),
            state / "app.json",
            (*setting_problems, *key_problems),
        )
