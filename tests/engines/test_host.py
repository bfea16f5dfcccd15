"""The engine's thread at its most delicate moments: interrupted before it has begun."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tbtui.catalog.split import Split
from tbtui.config import RunConfig
from tbtui.engines.host import EngineThread
from tbtui.engines.prepare import PreparedRun
from tbtui.journal.commands import RUN, Command
from tbtui.journal.rundir import RunDirectory
from tbtui.rollout.environments.choose import EnvironmentChoice

from .conftest import TASKS


@pytest.fixture
def host(tmp_path: Path) -> EngineThread:
    return EngineThread(
        PreparedRun(
            RunConfig(),
            tmp_path,
            Split(train=tuple(TASKS[:6]), heldout=tuple(TASKS[6:])),
            (),
            EnvironmentChoice("sandbox", "a test"),
            RunDirectory.create(tmp_path / "run"),
        )
    )


@pytest.mark.parametrize("first", ["interrupt", "start"])
async def test_an_interruption_is_never_lost(host: EngineThread, first: str) -> None:
    for action in (first, "start" if first == "interrupt" else "interrupt"):
        if action == "start":
            host.start()
        else:
            host.interrupt()
            host.interrupt()
    async with asyncio.timeout(30):
        end = await host.ended()
    assert end.status == "interrupted"


async def test_commands_are_taken_from_the_first_moment(host: EngineThread) -> None:
    host.start()
    host.submit(Command("pause", RUN))
    host.interrupt()
    async with asyncio.timeout(30):
        assert (await host.ended()).status == "interrupted"
    # And after the last: nobody listens, nothing breaks.
    host.submit(Command("resume", RUN))
    host.interrupt()
