"""A run that is followed through its files alone ends with the process that writes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tbtui.journal.rundir import RunDirectory, RunLock
from tbtui.ui import services as services_module
from tbtui.ui.services import WatchedRun


async def test_its_end_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services_module, "_LOOK_SEC", 0.01)
    run = RunDirectory.create(tmp_path / "run")
    with RunLock(run):
        host = WatchedRun(run)
        ended = asyncio.create_task(host.ended())
        await asyncio.sleep(0.05)
        assert not ended.done()
    assert (await ended).reason == "the run's process has ended"


async def test_one_that_is_left_or_recorded_ends_by_that_alone(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    recorded = WatchedRun(run)
    ended = asyncio.create_task(recorded.ended())
    await asyncio.sleep(0.05)
    assert not ended.done()
    with RunLock(run):
        live = WatchedRun(run)
        for host in (live, recorded):
            host.interrupt()
        assert (await live.ended()).reason == "left the recorded run"
    assert (await ended).status == "interrupted"
