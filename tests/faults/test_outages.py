"""Outages of real runs: a full disk, a server that pauses or stops, a machine that sleeps.

No reward of such a run differs from that of the same run left in peace.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tbtui.config import parse_settings
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.run import Run
from tbtui.journal.events import (
    Noted,
    OutageBegan,
    Outcome,
    RunPaused,
    RunResumed,
    StepFinished,
    TrialFinished,
    TrialRetried,
    TurnSampled,
)
from tbtui.journal.rundir import RunDirectory
from tests.engines.test_outages import fill, needs_root, tmpfs
from tests.engines.test_tinker_run import (
    events,
    on_server,
    prepared,
    rewards,
    said,
)
from tests.engines.test_tinker_run import server as server
from tests.engines.test_tinker_run import tasks as tasks
from tests.events import events_of
from tests.tinker_server.process import server_process
from tests.tinker_server.server import TinkerServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_SEC = 150.0
TWO_STEPS = ("max_steps=2", "save_every=1", "halt_after=2", "max_retries=0")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SEC):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another's hands
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def under_way(run: PreparedRun) -> AsyncIterator[asyncio.Task[object]]:
    task: asyncio.Task[object] = asyncio.create_task(Run(run).run())
    try:
        await until(lambda: task.done() or len(events(run, TurnSampled)) > 8)
        yield task
    finally:
        if not task.done():
            task.cancel()
            await task


def outcomes(run: PreparedRun) -> set[Outcome]:
    return {event.outcome for event in events(run, TrialFinished)}


async def finished(tmp_path: Path, tasks: Path, *settings: str) -> PreparedRun:
    """A run that nothing happens to."""
    whole = prepared(tmp_path, tasks, "whole", *settings)
    assert (await Run(whole).run()).status == "finished"
    return whole


def useful(run: PreparedRun) -> list[tuple[str, float]]:
    """Verified trials by their place, and their rewards."""
    return sorted(
        (re.sub(r"-retry\d+$", "", event.trial), event.reward)
        for event in events(run, TrialFinished)
        if event.reward is not None
    )


@needs_root
async def test_a_full_disk_pauses_the_run_until_there_is_room(tmp_path: Path, tasks: Path) -> None:
    whole = await finished(tmp_path, tasks, *TWO_STEPS)
    with tmpfs(tmp_path / "disk", "128m") as disk:
        run = prepared(disk, tasks, "full", *TWO_STEPS)
        async with under_way(run) as task:
            filler = fill(disk)
            await until(lambda: task.done() or events(run, RunPaused))
            assert not task.done()
            await asyncio.sleep(5.0)  # long enough for every trial to fail of it
            filler.unlink()
            await until(lambda: task.done() or events(run, RunResumed))
            end = await task
        assert end.status == "finished", end  # type: ignore[attr-defined]
        (paused, *_) = events(run, RunPaused)
        assert str(run.directory.path) in paused.reason
        assert "free" in paused.reason
        assert useful(run) == useful(whole)
        assert rewards(run) == rewards(whole)


@needs_root
async def test_ended_on_a_full_disk_it_goes_on_later(tmp_path: Path, tasks: Path) -> None:
    whole = await finished(tmp_path, tasks, *TWO_STEPS)
    with tmpfs(tmp_path / "disk", "128m") as disk:
        run = prepared(disk, tasks, "full", *TWO_STEPS)
        async with under_way(run) as task:
            filler = fill(disk)
            await until(lambda: task.done() or events(run, RunPaused))
        filler.unlink()
        await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tbtui", "run", "--no-ui", "--resume", run.directory.path],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert useful(run) == useful(whole)
        assert rewards(run) == rewards(whole)


async def test_a_server_that_pauses_is_nobodys_failure(
    server: TinkerServer, tmp_path: Path, tasks: Path
) -> None:
    """For longer than a completion, an agent and `halt_after` would bear."""
    calm = ("max_steps=2", "max_retries=0", *on_server(server))
    whole = await finished(tmp_path, tasks, *calm)
    asked = (*calm, "halt_after=1", "sample_timeout_sec=5", "trial_timeout_sec=12")
    run = prepared(tmp_path, tasks, "paused", *asked)
    async with under_way(run) as task:
        server.faults.pause("paused_capacity", "the pool is full", kinds=("asample",))
        await until(lambda: task.done() or events(run, RunPaused))
        assert not task.done()
        await asyncio.sleep(12.0)
        server.faults.resume()
        end = await task
    assert end.status == "finished", end  # type: ignore[attr-defined]
    (paused, *_) = events(run, RunPaused)
    assert "the tinker server is paused: no capacity (the pool is full)" in paused.reason
    assert outcomes(run) <= {Outcome.SOLVED, Outcome.FAILED, *outcomes(whole)}
    assert not events(run, TrialRetried)
    assert useful(run) == useful(whole)
    assert said(run) == said(whole)


async def test_a_server_that_stops_answering_is_nobodys_failure(
    tmp_path: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped: connections are taken, and nothing comes back."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    async with server_process(tmp_path / "server") as server:
        asked = (
            *("policy=tinker", "model_name=starter", "renderer=embedded", "max_retries=0"),
            *(f"tinker_base_url={server.url}", "max_steps=2"),
        )
        whole = await finished(tmp_path, tasks, *asked)
        run = prepared(tmp_path, tasks, "stopped", *asked, "halt_after=1", "sample_timeout_sec=5")
        async with under_way(run) as task:
            with stopped(psutil.Process(server.pid)):
                await until(lambda: task.done() or events(run, RunPaused))
                assert not task.done()
            end = await task
        assert end.status == "finished", end  # type: ignore[attr-defined]
        assert not {Outcome.AGENT_TIMEOUT} & outcomes(run) - outcomes(whole)
        assert useful(run) == useful(whole)


@contextlib.contextmanager
def stopped(*processes: psutil.Process) -> Iterator[None]:
    """With all that they have started."""
    everything: list[psutil.Process] = []
    for process in processes:
        everything += [process, *process.children(recursive=True)]
    for each in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in reversed(everything):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)


async def test_time_asleep_is_nobodys_time(tmp_path: Path, tasks: Path) -> None:
    """Every process of the run is stopped, for longer than an agent has and a verifier takes."""
    asked = ("max_steps=2", "halt_after=1", "max_retries=0", "trial_timeout_sec=12")
    whole = await finished(tmp_path, tasks, *asked)
    config = parse_settings([])
    assert config.n_workers >= 1
    logs = tmp_path / "runs"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tbtui", "run", "--no-ui", f"logs_dir={logs}"),
        *(f"tasks_dir={tasks}", "run_name=asleep", "batch_size=2", "group_size=4"),
        *("eval_every=0", "eval_group_size=1", *asked),
        stdout=subprocess.DEVNULL,
    )
    directory = RunDirectory(logs / "asleep")
    try:
        await until(
            lambda: directory.database.exists() and len(events_of(directory, TurnSampled)) > 8
        )
        with stopped(psutil.Process(process.pid)):
            await asyncio.sleep(20.0)
        assert await asyncio.wait_for(process.wait(), PATIENCE_SEC) == 0
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
    ends = events_of(directory, TrialFinished)
    assert Outcome.AGENT_TIMEOUT not in {event.outcome for event in ends} - outcomes(whole)
    assert sorted((e.trial, e.reward) for e in ends if e.reward is not None) == useful(whole)
    assert len(events_of(directory, StepFinished)) == 2
    assert [event.what for event in events_of(directory, OutageBegan)] == ["sleep"]
    assert not [note for note in events_of(directory, Noted) if note.level == "error"]
    assert any(event.seconds.paused > 10 for event in ends)
