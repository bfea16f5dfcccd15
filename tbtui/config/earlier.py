"""Settings of earlier versions, as the files and journals of runs have them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_TRAINED_ON_FORKS = (
    "training on forks did not pay and is gone; revision 53aa2b5 has it (the guide's page fork)"
)
REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "group_from": _TRAINED_ON_FORKS,
        "fork_groups_per_step": _TRAINED_ON_FORKS,
        "value_rollouts_per_step": _TRAINED_ON_FORKS,
        "value_rollouts_per_turn": _TRAINED_ON_FORKS,
        "normalize_advantages_by_std": "give advantage=std, which it meant",
    }
)
"""Settings that there are no more, and why."""


def as_now(values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Settings by today's names, and what they ask for that is gone, if anything.

    A run's file has every default, so that most settings that are gone ask for nothing.
    """
    now = {name: value for name, value in values.items() if name not in REMOVED}
    gone = ""
    if values.get("normalize_advantages_by_std"):
        now["advantage"] = "std"
    if values.get("group_from", "task") != "task":
        gone = f"group_from={values['group_from']}: {_TRAINED_ON_FORKS}"
    if values.get("advantage") == "turn_value":
        now["advantage"] = "leave_one_out"  # that of its trials whose turns were not valued
        gone = f"advantage=turn_value: {_TRAINED_ON_FORKS}"
    return now, gone
