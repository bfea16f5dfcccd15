"""Lifetimes of services' sandboxes, by the names that Harbor has for them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import harbor
import pytest

from tbtui.rollout.environments.docker import DockerEnvironment
from tbtui.rollout.environments.lifetime import Lifetime, lifetime
from tbtui.rollout.held_sandbox import HeldSandbox


class Limited:
    """A sandbox with the arguments of Harbor's environments; it keeps the commands run in it."""

    def __init__(
        self,
        sandbox_timeout_secs: int = 86_400,
        sandbox_idle_timeout_secs: int | None = None,
        auto_stop_interval_mins: int = 0,
        ready_timeout_sec: int = 5,
    ) -> None:
        self.session_id = "s"
        self.ran: list[str] = []

    async def exec(self, command: str, timeout_sec: int) -> None:
        self.ran.append(command)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, Lifetime(86_400, False, "sandbox_timeout_secs")),
        ({"sandbox_timeout_secs": 60}, Lifetime(60, False, "sandbox_timeout_secs")),
        ({"sandbox_idle_timeout_secs": 9}, Lifetime(9, True, "sandbox_idle_timeout_secs")),
        ({"auto_stop_interval_mins": 5}, Lifetime(300, True, "auto_stop_interval_mins")),
        ({"sandbox_timeout_secs": 0, "ready_timeout_sec": 1}, None),
    ],
)
def test_what_ends_a_sandbox_first(kwargs: dict[str, Any], expected: Lifetime | None) -> None:
    assert lifetime(Limited, kwargs) == expected
    assert lifetime(DockerEnvironment, kwargs) is None


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("modal", "sandbox_idle_timeout_secs"), ("modal", "sandbox_timeout_secs"),
        ("daytona/environment", "auto_stop_interval_mins"), ("prime", "timeout_minutes"),
        ("opensandbox", "sandbox_timeout_sec"), ("langsmith", "idle_ttl_seconds"),
        ("cwsandbox", "max_lifetime_seconds"), ("vercel/environment", "sandbox_lifetime_seconds"),
    ],
)  # fmt: skip
def test_harbor_calls_it_so(module: str, name: str) -> None:
    # Read and not imported: most need their SDK for that.
    assert f" {name}: " in Path(harbor.__file__).with_name("environments").joinpath(
        f"{module}.py"
    ).read_text("utf-8")


async def test_idle_time_begins_anew_with_a_command() -> None:
    idle = Limited()
    kept = await HeldSandbox(cast(Any, idle), {"auto_stop_interval_mins": 5}).keep_alive()
    assert kept is not None and kept.secured and kept.seconds == 300
    assert idle.ran == ["true"]
    mortal = Limited()
    left = await HeldSandbox(cast(Any, mortal), {"sandbox_timeout_secs": 60}).keep_alive()
    assert left is not None and not left.secured and math.isclose(left.seconds, 60, abs_tol=5)
    assert left.note == "sandbox_timeout_secs"
    assert mortal.ran == []
