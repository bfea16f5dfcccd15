"""Lifetimes of services' sandboxes. The services can't be had in a test: their SDKs' handles are
fakes here, with the methods and the meaning that the SDKs document."""

from __future__ import annotations

import datetime
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import harbor
import pytest
from harbor.environments.factory import _ENVIRONMENT_REGISTRY
from harbor.models.environment_type import EnvironmentType

from tbtui.rollout.environments import lifetime as module
from tbtui.rollout.environments.kinds import harbor_kinds
from tbtui.rollout.environments.lifetime import Lifetime, extend, lifetime


def environment(kind: str, **attributes: Any) -> Any:
    return SimpleNamespace(type=lambda: kind, **attributes)


def in_seconds(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


class FakeE2BSandbox:
    """`e2b.AsyncSandbox`: a timeout counts from now, and is cut to what the plan allows."""

    def __init__(self, left: float, most: float) -> None:
        self.ends = in_seconds(left)
        self.most = in_seconds(most)

    async def get_info(self) -> Any:
        return SimpleNamespace(end_at=self.ends)

    async def set_timeout(self, timeout: int) -> None:  # noqa: ASYNC109
        self.ends = min(in_seconds(timeout), self.most)


class FakeOpenSandbox:
    """`opensandbox.Sandbox`."""

    def __init__(self, left: float) -> None:
        self.ends = in_seconds(left)

    async def get_info(self) -> Any:
        return SimpleNamespace(expires_at=self.ends)

    async def renew(self, timeout: datetime.timedelta) -> None:  # noqa: ASYNC109
        self.ends = datetime.datetime.now(datetime.UTC) + timeout


class FakeDaytonaSandbox:
    """`daytona.AsyncSandbox`."""

    refreshed = 0

    async def refresh_activity(self) -> None:
        self.refreshed += 1


class FakeVercelSandbox:
    """`vercel.sandbox.Sandbox`: adds to the limit."""

    added = 0.0

    async def extend_execution_time_limit(self, duration: datetime.timedelta) -> None:
        self.added += duration.total_seconds()


class FakeBlaxelSandbox:
    """`blaxel.core.SandboxInstance`: a time to live counts from the creation."""

    def __init__(self, age: float) -> None:
        created = in_seconds(-age).isoformat().replace("+00:00", "Z")
        self.metadata = SimpleNamespace(name="box", created_at=created)
        self.ttl: tuple[str, str] | None = None

    async def update_ttl(self, name: str, ttl: str) -> None:
        self.ttl = (name, ttl)


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("sandbox", {}, None),
        ("docker", {}, None),
        (
            "modal",
            {"_sandbox_timeout": 600, "_sandbox_idle_timeout": None},
            Lifetime(600, "total", "sandbox_timeout_secs", False),
        ),
        (
            "modal",
            {"_sandbox_timeout": 600, "_sandbox_idle_timeout": 60},
            Lifetime(60, "idle", "sandbox_idle_timeout_secs", True),
        ),
        ("daytona", {"_auto_stop_interval": 0}, None),
        (
            "daytona",
            {"_auto_stop_interval": 5},
            Lifetime(300, "idle", "auto_stop_interval_mins", True),
        ),
        ("runloop", {}, Lifetime(86_400, "total", None, False)),
        ("blaxel", {"_ttl": "24h"}, Lifetime(86_400, "total", "ttl", True)),
        ("cua-cloud", {"_renew_interval": 60.0, "_claim_ttl_sec": 1800}, None),
        ("hf-sandbox", {"_idle_timeout": None}, Lifetime(86_400, "total", None, False)),
    ],
)
def test_what_a_sandbox_has(
    kind: str, attributes: dict[str, Any], expected: Lifetime | None
) -> None:
    assert lifetime(environment(kind, **attributes)) == expected


async def test_e2b_is_never_shortened_and_a_cut_is_noticed() -> None:
    sandbox = FakeE2BSandbox(left=1000, most=5000)
    held = environment("e2b", _sandbox=sandbox)
    ends = sandbox.ends
    assert await extend(held, 500) and sandbox.ends == ends
    assert await extend(held, 3000) and sandbox.ends > in_seconds(2900)
    assert not await extend(held, 86_400)


async def test_services_that_give_longer() -> None:
    opened = FakeOpenSandbox(left=10)
    assert await extend(environment("opensandbox", _sandbox=opened, _sandbox_timeout_sec=9), 100)
    assert opened.ends > in_seconds(90)
    vercel = FakeVercelSandbox()
    assert await extend(environment("vercel", _sandbox=vercel, _sandbox_lifetime_sec=9), 60.5)
    assert vercel.added == 61
    blaxel = FakeBlaxelSandbox(age=3000)
    held = environment("blaxel", _sandbox=blaxel, _ttl="1h")
    assert await extend(held, 500) and blaxel.ttl is None
    assert await extend(held, 1000) and blaxel.ttl is not None
    assert blaxel.ttl[0] == "box" and 4000 <= int(blaxel.ttl[1].removesuffix("s")) <= 4010


async def test_idle_time_begins_anew_but_gets_no_longer() -> None:
    daytona = FakeDaytonaSandbox()
    held = environment("daytona", _sandbox=daytona, _auto_stop_interval=5)
    assert await extend(held, 300) and daytona.refreshed == 1
    assert not await extend(held, 301)
    ran: list[str] = []

    async def run(command: str, timeout_sec: int) -> None:
        ran.append(command)

    assert await extend(environment("mosaic", _ttl_seconds=60, exec=run), 60)
    assert ran == ["true"]


async def test_services_that_do_not() -> None:
    modal = environment("modal", _sandbox_timeout=600, _sandbox_idle_timeout=None)
    for held in (modal, environment("runloop"), environment("docker")):
        assert not await extend(held, 1)
    assert not await extend(environment("e2b", _sandbox=None), 1)


@pytest.mark.parametrize("kind", sorted(set(module._SERVICES) & set(harbor_kinds())))
def test_harbor_keeps_what_is_read(kind: str) -> None:
    """The private attributes are still where they were, in the Harbor that is installed."""
    # Read and not imported: most need their SDK for that.
    entry = _ENVIRONMENT_REGISTRY[EnvironmentType(kind)]
    path = Path(harbor.__file__).parents[1] / entry.module.replace(".", "/")
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    source = "".join(file.read_text() for file in files)
    service = module._SERVICES[kind]
    names = {service.attribute}
    for function in (service.find, service.extend):
        if function is not None:
            names |= set(re.findall(r"held\.(\w+)", inspect.getsource(function)))
    for name in names - {"exec", None}:
        assert re.search(rf"\b{name}\b[^=\n]*=", source), f"{kind}: {name}"
