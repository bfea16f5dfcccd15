"""Knows how long a service's sandbox lives, by what Harbor's environments call it.

Harbor's classes have the limit and its unit among their arguments (`sandbox_timeout_secs`,
`auto_stop_interval_mins`, ...), which `environment_kwargs` may set. What a service limits besides
is not known here. No service has been tried.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAMED = re.compile(
    r"(?:(?:sandbox_|max_)?lifetime|(?:sandbox_)?(?P<idle>idle_)?(?:timeout|ttl)"
    r"|(?P<stop>auto_stop)_interval)_(?:sec(?:ond)?s?|(?P<minutes>min(?:ute)?s?))"
)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a sandbox is taken away."""

    seconds: float
    """From its start; of an idle one, from the last command in it."""
    idle: bool
    setting: str
    """The key of `environment_kwargs` that sets it."""


def lifetime(kind: type, kwargs: Mapping[str, Any]) -> Lifetime | None:
    """What ends a sandbox first, or None where nothing is known to.

    Args:
        kind: the environment's class.
        kwargs: what it was made with, beside the defaults.
    """
    found = []
    for name, parameter in inspect.signature(kind).parameters.items():
        value = kwargs.get(name, parameter.default)
        if (named := _NAMED.fullmatch(name)) and isinstance(value, int | float) and value > 0:
            seconds = value * (60.0 if named["minutes"] else 1.0)
            found.append(Lifetime(seconds, bool(named["idle"] or named["stop"]), name))
    return min(found, key=lambda each: each.seconds, default=None)
