"""The settings of a run: what there is (`settings`), and where it comes from (`sources`)."""

from tbtui.config.defaults import Default, defaults_for, is_embedded
from tbtui.config.places import absolute
from tbtui.config.settings import (
    GROUPS,
    POLICY_SETTINGS,
    Advantage,
    AlarmAction,
    Normalizer,
    RunConfig,
)
from tbtui.config.sources import (
    is_file,
    names_of,
    names_typed,
    parse_run_settings,
    parse_settings,
)
from tbtui.config.table import Setting, setting_rows, settings, settings_markdown
from tbtui.config.toml import to_toml
from tbtui.config.values import (
    ConfigError,
    default_of,
    read_config,
    read_setting,
    to_json,
)

__all__ = [
    "GROUPS",
    "POLICY_SETTINGS",
    "Advantage",
    "AlarmAction",
    "ConfigError",
    "Default",
    "Normalizer",
    "RunConfig",
    "Setting",
    "absolute",
    "default_of",
    "defaults_for",
    "is_embedded",
    "is_file",
    "names_of",
    "names_typed",
    "parse_run_settings",
    "parse_settings",
    "read_config",
    "read_setting",
    "setting_rows",
    "settings",
    "settings_markdown",
    "to_json",
    "to_toml",
]
