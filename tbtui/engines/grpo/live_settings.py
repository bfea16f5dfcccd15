"""Settings that may change while the run goes on, and what each change leads to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tbtui.config import ConfigError, RunConfig, read_setting, to_json
from tbtui.engines.fixed_settings import FIXED
from tbtui.engines.grpo.review_rules import load_rules
from tbtui.engines.honoured import require_consistent

LIVE: Mapping[str, str] = MappingProxyType(
    {
        "max_steps": "the learning rate falls towards the new last step from the next one on",
        "eval_every": "counts from the first step, as before",
        "save_every": "counts from the first step, as before",
        "keep_checkpoints": "older ones are removed at the next save",
        "max_cost": "holds from the end of the step under way on",
        "n_parallel_envs": "trials that run already end first",
        "env_starts_per_sec": "holds for the next trial that starts",
        "max_retries": "holds for the next failure",
        "retry_wait_sec": "holds for the next failure",
        "sample_timeout_sec": "holds for trials that start from now on",
        "step_deadline_sec": "holds for batches that begin from now on",
        "at_deadline": "holds for batches that begin from now on",
        "review": "holds for steps whose trials end from now on",
        "review_rules": "holds for steps whose trials end from now on",
        "review_timeout_sec": "holds for reviews that open from now on",
        "at_review_timeout": "holds for reviews that close from now on",
    }
)
"""Names, and from when on a change is felt."""


def changed_config(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """`config` with these JSON-like values in it.

    Raises:
        ConfigError: a setting can't change in a live run, or not to this.
    """
    if not values:
        raise ConfigError("no setting is named; write name=value")
    new = {name: read_setting(name, _live(name, value)) for name, value in values.items()}
    changed = config.replace(**new, given=config.given | new.keys())
    require_consistent(changed)
    if "review_rules" in new and changed.review_rules is not None:
        load_rules(changed.review_rules)
    return changed


def differences(old: RunConfig, new: RunConfig) -> dict[str, Any]:
    """Settings of `new` that differ, as JSON has them."""
    before, now = to_json(old), to_json(new)
    return {name: value for name, value in now.items() if before[name] != value}


def in_words(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`eval_every 5 (was 10; counts from the first step, as before)`."""
    return ", ".join(
        f"{name} {_shown(value)} (was {_shown(before[name])}; {LIVE[name]})"
        for name, value in now.items()
    )


def _live(name: str, value: Any) -> Any:
    read_setting(name, value)  # one that nobody knows is refused as such
    if name not in LIVE:
        reason = FIXED.get(name)
        raise ConfigError(
            f"{name}: can't change in a live run"
            + (f": {reason}" if reason else f"; stop it, and resume it with {name}=...")
        )
    return value


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
