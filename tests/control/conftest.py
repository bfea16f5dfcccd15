from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tbtui.ctl.app import ctl_app

from .bench import LiveRun
from .shell import Shell

Begin = Callable[..., Awaitable[LiveRun]]
Ctl = Callable[..., Awaitable[Result]]


async def asked(ctl: Ctl, *arguments: str, status: int = 0) -> Any:
    """What a command prints as JSON."""
    result = await ctl(*arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of anybody else's is seen, and none of ours by anybody else."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    """Begins live runs, which end with the test."""
    runs: list[LiveRun] = []

    async def begin(name: str = "r", owner: str = "", **settings: Any) -> LiveRun:
        runs.append(LiveRun(tmp_path / "runs" / name, owner, **settings))
        await runs[-1].begin()
        return runs[-1]

    yield begin
    for run in runs:
        await run.stop()


@pytest.fixture
async def live(begin: Begin) -> LiveRun:
    return await begin()


@pytest.fixture
def ctl() -> Ctl:
    """`tbtui ctl ...`, on a thread: the run is on the test's own loop."""

    async def ask(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, ctl_app, arguments)

    return ask


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.processes():
        process.kill()
