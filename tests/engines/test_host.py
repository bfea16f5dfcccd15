"""The engine's thread at its most delicate moments: interrupted before it has begun."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.engines.host import EngineThread
from tbtui.engines.request import RunRequest
from tbtui.journal.commands import RUN, Command
from tbtui.journal.rundir import RunDirectory

pytestmark = pytest.mark.linux  # the default environment is the sandbox


@pytest.fixture
def host(tmp_path: Path) -> EngineThread:
    return EngineThread(RunRequest(RunConfig(), RunDirectory.create(tmp_path / "run")))


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


async def test_what_cannot_be_run_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    request = RunRequest(
        RunConfig(tasks_dir=tmp_path / "empty"), RunDirectory.create(tmp_path / "run")
    )
    host = EngineThread(request)
    host.start()
    async with asyncio.timeout(30):
        end = await host.ended()
    assert end.status == "refused"
    assert end.reason.startswith(f"no tasks in {tmp_path / 'empty'}")
    assert not (tmp_path / "run").exists()
