"""Where a user's own files lie: settings, tasks, state; as the XDG base directory rules have it."""

from __future__ import annotations

import os
from pathlib import Path


def config_dir() -> Path:
    """Named sets, keys, themes: `$XDG_CONFIG_HOME/tbtui`, else `~/.config/tbtui`."""
    return _base("XDG_CONFIG_HOME", ".config")


def data_dir() -> Path:
    """Fetched tasks: `$XDG_DATA_HOME/tbtui`, else `~/.local/share/tbtui`."""
    return _base("XDG_DATA_HOME", ".local/share")


def state_dir() -> Path:
    """Which runs are live, and what else may be lost: `$XDG_STATE_HOME/tbtui`, else
    `~/.local/state/tbtui`."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    # A relative path is to be ignored, say the rules.
    home = Path(given) if given.startswith("/") else Path.home() / default
    return home / "tbtui"
