"""Changes settings while the run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbtui.config import (
    ConfigError,
    RunConfig,
    fixed_on_resume,
    live_effects,
    read_setting,
    to_json,
)
from tbtui.config.problems import require_no_errors
from tbtui.engines.grpo.config_checks import grpo_problems
from tbtui.engines.grpo.review_rules import load_rules


def changed_config(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """`config` with these JSON-like values in it.

    Raises:
        ConfigError: a setting can't change in a live run, or not to this.
    """
    if not values:
        raise ConfigError("no setting is named; write name=value")
    new = {name: _read_live(name, value) for name, value in values.items()}
    changed = config.replace(**new, given=config.given | new.keys())
    require_no_errors(grpo_problems(changed))
    if "review_rules" in new and changed.review_rules is not None:
        load_rules(changed.review_rules)
    return changed


def differences(old: RunConfig, new: RunConfig) -> dict[str, Any]:
    """Settings of `new` that differ, as JSON has them."""
    before, now = to_json(old), to_json(new)
    return {name: value for name, value in now.items() if before[name] != value}


def in_words(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`eval_every 5 (was 10; counts from the first step, as before)`."""
    effects = live_effects()
    return ", ".join(
        f"{name} {_shown(value)} (was {_shown(before[name])}; {effects[name]})"
        for name, value in now.items()
    )


def _read_live(name: str, value: Any) -> Any:
    """The value of a setting that may change in a live run; raises `ConfigError`."""
    read = read_setting(name, value)
    if name not in live_effects():
        reason = fixed_on_resume().get(name)
        raise ConfigError(
            f"{name}: can't change in a live run"
            + (f": {reason}" if reason else f"; stop it, and resume it with {name}=...")
        )
    return read


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
