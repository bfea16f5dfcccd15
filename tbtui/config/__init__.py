"""The settings of a run: what there is (`settings`), and where it comes from (`sources`)."""

from tbtui.config.settings import (
    GROUPS,
    Advantage,
    AlarmAction,
    BudgetUnit,
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
from tbtui.config.table import (
    Setting,
    fixed_on_resume,
    live_effects,
    setting_rows,
    settings,
    settings_markdown,
)
from tbtui.config.toml import to_toml
from tbtui.config.values import (
    ConfigError,
    Default,
    absolute,
    default_of,
    defaults_for,
    is_embedded,
    read_config,
    read_setting,
    to_json,
)

__all__ = [
    "GROUPS",
    "Advantage",
    "AlarmAction",
    "BudgetUnit",
    "ConfigError",
    "Default",
    "Normalizer",
    "RunConfig",
    "Setting",
    "absolute",
    "default_of",
    "defaults_for",
    "fixed_on_resume",
    "is_embedded",
    "is_file",
    "live_effects",
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
