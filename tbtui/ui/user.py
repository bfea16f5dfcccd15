"""What a person has chosen for the app, read once at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tbtui.ui.keymap import KeyTable, read_key_table
from tbtui.ui.preferences import Preferences, read_preferences
from tbtui.ui.settings import AppSettings, read_settings


@dataclass(frozen=True, slots=True)
class User:
    """By default nobody in particular, of whom nothing is remembered."""

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
        """From `app.toml`, `keys.toml` and `themes/` in `config`, and `app.json` in `state`."""
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
