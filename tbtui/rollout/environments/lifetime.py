"""Knows how long cloud sandboxes live, and extends them.

What is known here of each service was read in Harbor's source (0.24, 0.25) and in the service's
SDK; none has been run. Harbor keeps the settings in private attributes, which `_SERVICES` names; a
test sees that they exist in the installed Harbor.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from harbor.environments.base import BaseEnvironment

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a sandbox is taken away."""

    seconds: float
    """From its start (total), or from the last command in it (idle)."""
    kind: Literal["total", "idle"]
    setting: str | None
    """The key of `environment_kwargs` that sets it; None where Harbor leaves no choice."""
    extendable: bool
    """Whether `extend` may succeed."""


Held = Any
"""An environment of a known type, whose private attributes are read."""
Extend = Callable[[Held, float], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class _Service:
    attribute: str | None = None
    """Harbor's, which holds the number; none: it is always a day."""
    setting: str | None = None
    kind: Literal["total", "idle"] = "total"
    unit: float = 1.0
    """Seconds."""
    extend: Extend | None = None
    find: Callable[[Held], Lifetime | None] | None = None
    """In place of all these but `extend`, where it is more than a number."""

    def lifetime(self, held: Held) -> Lifetime | None:
        if self.find is not None:
            return self.find(held)
        number = attrgetter(self.attribute)(held) if self.attribute else _DAY
        if number is None or number <= 0:
            return None
        seconds = float(number * self.unit)
        return Lifetime(seconds, self.kind, self.setting, self.extend is not None)


def lifetime(environment: BaseEnvironment) -> Lifetime | None:
    """What this sandbox has, or None where nothing is known to end it."""
    service = _SERVICES.get(environment.type())
    return service.lifetime(environment) if service else None


async def extend(environment: BaseEnvironment, seconds: float) -> bool:
    """Ask the service that the sandbox lives for at least `seconds` from now.

    The lifetime it started with is never shortened. False where the service has no way, gave
    less than was asked for, or the sandbox has not started. What the SDK raises is passed on.
    """
    service = _SERVICES.get(environment.type())
    if service is None or service.extend is None:
        return False
    known = lifetime(environment)
    return known is not None and known.extendable and await service.extend(environment, seconds)


def _modal(held: Held) -> Lifetime:
    # A day is the most that Modal gives, and its SDK can't change it later. Time without a
    # command, where it is limited too, is what ends first.
    idle = held._sandbox_idle_timeout
    if idle is not None and idle < held._sandbox_timeout:
        return Lifetime(float(idle), "idle", "sandbox_idle_timeout_secs", True)
    return Lifetime(float(held._sandbox_timeout), "total", "sandbox_timeout_secs", False)


def _hf_sandbox(held: Held) -> Lifetime:
    # The service ends every sandbox after a day, commands or not.
    idle = held._idle_timeout
    if idle:
        return Lifetime(float(idle), "idle", "job_timeout", True)
    return Lifetime(_DAY, "total", None, False)


def _blaxel(held: Held) -> Lifetime | None:
    found = re.fullmatch(r"(\d+)([smhdw])", str(held._ttl))
    if found is None:
        return None
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[found[2]]
    return Lifetime(float(int(found[1]) * unit), "total", "ttl", True)


def _cua_cloud(held: Held) -> Lifetime | None:
    # Harbor renews the claim itself, unless configured not to.
    if held._renew_interval > 0:
        return None
    return Lifetime(float(held._claim_ttl_sec), "total", "claim_ttl_sec", False)


def _sbx(held: Held) -> Lifetime | None:
    # One on this machine has none; one in Docker's cloud ends then, whatever happens.
    if held.target == "local":
        return None
    return Lifetime(float(held.options.lifetime), "total", "lifetime", False)


def _tensorlake(held: Held) -> Lifetime:
    return Lifetime(float(held._timeout_secs or _DAY), "total", "timeout_secs", False)


async def _refresh_daytona(held: Held, seconds: float) -> bool:
    if held._sandbox is None:
        return False
    await held._sandbox.refresh_activity()
    return bool(seconds <= held._auto_stop_interval * 60)


async def _set_e2b_timeout(held: Held, seconds: float) -> bool:
    """For E2B and its relative Novita. What is set counts from now, so it could shorten too;
    more than the plan allows is cut without a word."""
    if held._sandbox is None:
        return False
    if _left((await held._sandbox.get_info()).end_at) < seconds:
        await held._sandbox.set_timeout(math.ceil(seconds))
    # A second for the two clocks and the way there.
    return _left((await held._sandbox.get_info()).end_at) >= seconds - 1


async def _renew_opensandbox(held: Held, seconds: float) -> bool:
    if held._sandbox is None:
        return False
    ends = (await held._sandbox.get_info()).expires_at
    if ends is not None and _left(ends) < seconds:
        await held._sandbox.renew(datetime.timedelta(seconds=math.ceil(seconds)))
    return True


async def _add_to_vercel(held: Held, seconds: float) -> bool:
    """Vercel's is an increase. It raises for more than the plan allows."""
    if held._sandbox is None:
        return False
    await held._sandbox.extend_execution_time_limit(datetime.timedelta(seconds=math.ceil(seconds)))
    return True


async def _set_blaxel_ttl(held: Held, seconds: float) -> bool:
    """A time to live counts from the sandbox's creation, as the service dates it."""
    sandbox, known = held._sandbox, _blaxel(held)
    if sandbox is None or known is None:
        return False
    created = datetime.datetime.fromisoformat(sandbox.metadata.created_at)
    wanted = seconds - _left(created)
    if wanted > known.seconds:
        await sandbox.update_ttl(sandbox.metadata.name, f"{math.ceil(wanted)}s")
    return True


async def _run_something(held: Held, seconds: float) -> bool:
    """A command is activity; the same time without one begins anew."""
    await held.exec("true", timeout_sec=60)
    known = lifetime(held)
    return known is not None and seconds <= known.seconds


_SERVICES: Mapping[str, _Service] = MappingProxyType(
    {
        "modal": _Service(find=_modal, extend=_run_something),
        "hf-sandbox": _Service(find=_hf_sandbox, extend=_run_something),
        "blaxel": _Service(find=_blaxel, extend=_set_blaxel_ttl),
        "cua-cloud": _Service(find=_cua_cloud),
        "sbx": _Service(find=_sbx),
        "daytona": _Service(
            "_auto_stop_interval", "auto_stop_interval_mins", "idle", 60, _refresh_daytona
        ),
        "e2b": _Service(extend=_set_e2b_timeout),
        "novita": _Service("_SANDBOX_TIMEOUT_SEC", extend=_set_e2b_timeout),
        "opensandbox": _Service(
            "_sandbox_timeout_sec", "sandbox_timeout_sec", extend=_renew_opensandbox
        ),
        "vercel": _Service(
            "_sandbox_lifetime_sec", "sandbox_lifetime_seconds", extend=_add_to_vercel
        ),
        "langsmith": _Service(
            "_idle_ttl_seconds", "idle_ttl_seconds", "idle", extend=_run_something
        ),
        "mosaic": _Service("_ttl_seconds", "ttl_seconds", "idle", extend=_run_something),
        # Harbor asks for a day. The SDK's keep_alive() is for boxes that end when idle only.
        "runloop": _Service(),
        "skypilot": _Service(),
        "cwsandbox": _Service("_max_lifetime_seconds", "max_lifetime_seconds"),
        "sail": _Service("_max_lifetime_seconds", "max_lifetime_seconds"),
        "tensorlake": _Service(find=_tensorlake),
        "prime": _Service("_timeout_minutes", "timeout_minutes", unit=60),
        "hyperbrowser": _Service("_timeout_minutes", "timeout_minutes", unit=60),
        "islo": _Service("_delete_after_seconds", "delete_after_seconds"),
        "beam": _Service("_keep_warm_seconds", "keep_warm_seconds"),
    }
)


def _left(moment: datetime.datetime) -> float:
    """Seconds until then; times without a zone are UTC, as services mean them."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - datetime.datetime.now(datetime.UTC)).total_seconds()
