"""Boxes for tests."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil

from tbtui.rollout.environments.box import Box, CommandResult
from tbtui.rollout.environments.box_start import start_box, start_bubblewrap_box
from tbtui.rollout.environments.limits import BoxLimits, box_limits
from tbtui.rollout.environments.plan import Bind, BoxPlan, plan_box
from tbtui.rollout.environments.userland import BASE_ENVIRONMENT, Userland

Starter = Callable[[BoxPlan, str], Awaitable[Box]]
STARTERS: dict[str, Starter] = {"namespaces": start_box}
if shutil.which("bwrap"):
    STARTERS["bubblewrap"] = start_bubblewrap_box


def limits(
    *,
    memory_mb: int = 256,
    storage_mb: int = 64,
    processes: int = 100,
    cpu_seconds: int = 60,
    download_mb: int = 64,
) -> BoxLimits:
    """Small ones, so that running into them takes no time."""
    return box_limits(
        memory_mb=memory_mb,
        storage_mb=storage_mb,
        processes=processes,
        cpu_seconds=cpu_seconds,
        download_mb=download_mb,
    )


@asynccontextmanager
async def running_box(
    backend: str = "namespaces",
    *,
    limit: BoxLimits | None = None,
    network: bool = False,
    grants: tuple[Bind, ...] = (),
    userland: Userland | None = None,
    plan: BoxPlan | None = None,
) -> AsyncIterator[Box]:
    """A box that is gone after the block; `plan` takes the place of what stands before it."""
    plan = plan or plan_box(limit or limits(), network=network, grants=grants, userland=userland)
    box = await STARTERS[backend](plan, "test")
    try:
        yield box
    finally:
        await box.stop()


async def sh(
    box: Box, command: str, *, timeout_sec: float | None = 30, user: str | None = None
) -> CommandResult:
    """Runs a shell command in the box."""
    return await box.run(
        ["/bin/bash", "-c", command],
        environment=BASE_ENVIRONMENT,
        cwd="/app",
        user=user,
        timeout_sec=timeout_sec,
    )


def processes_of(box: Box) -> list[int]:
    """The host's numbers of all processes in the box."""
    assert box.init_pid is not None
    return [process.pid for process in family(box.init_pid)]


def family(init_pid: int) -> list[psutil.Process]:
    """A box's first process and all that descend from it: an orphan becomes the first one's
    child. (An ordinary user may not ask for another's pid namespace.)"""
    init = psutil.Process(init_pid)
    return [init, *init.children(recursive=True)]
