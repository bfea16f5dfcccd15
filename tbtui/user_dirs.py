"""Where a user's own files lie; on Linux as the XDG base directory specification says."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_NAME = "tbtui"


def config_dir() -> Path:
    """Named sets, keys, themes: `$XDG_CONFIG_HOME/tbtui`, else `~/.config/tbtui`."""
    return platformdirs.user_config_path(_NAME)


def data_dir() -> Path:
    """Fetched tasks: `$XDG_DATA_HOME/tbtui`, else `~/.local/share/tbtui`."""
    return platformdirs.user_data_path(_NAME)


def state_dir() -> Path:
    """Which runs are live, and what else may be lost: `$XDG_STATE_HOME/tbtui`, else
    `~/.local/state/tbtui`."""
    return platformdirs.user_state_path(_NAME)


def cache_dir() -> Path:
    """What can be fetched again: `$XDG_CACHE_HOME/tbtui`, else `~/.cache/tbtui`."""
    return platformdirs.user_cache_path(_NAME)
