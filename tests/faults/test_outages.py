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
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

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
from tests.cli.process import tbtui
from tests.engines.test_outages import fill, needs_root, tmpfs
from tests.engines.test_tinker_run import (
    events,
    on_server,
    prepared,
    rewards,
    said,
    write_tasks,
)
from tests.engines.test_tinker_run import server as server
from tests.engines.test_tinker_run import tasks as tasks
from tests.events import events_of
from tests.tinker_server.server import TinkerServer
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.starves, pytest.mark.timeout(400)]

PATIENCE_SEC = 150.0
TWO_STEPS = ("max_steps=2", "save_every=1", "halt_after=2", "max_retries=0")


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


type Calm = tuple[list[tuple[str, float]], Sequence[float]]
"""`useful` and `rewards` of a run that nothing happens to."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    where = tmp_path_factory.mktemp("calm")
    run = asyncio.run(finished(where, write_tasks(where), *TWO_STEPS))
    return useful(run), rewards(run)


def useful(run: PreparedRun) -> list[tuple[str, float]]:
    """Verified trials by their place, and their rewards."""
    return sorted(
        (re.sub(r"-retry\d+$", "", event.trial), event.reward)
        for event in events(run, TrialFinished)
        if event.reward is not None
    )


@needs_root
@pytest.mark.parametrize("ended", [False, True], ids=["waits", "is ended"])
async def test_a_full_disk_costs_no_trial(
    tmp_path: Path, tasks: Path, calm: Calm, ended: bool
) -> None:
    """The run waits for room; or it is ended meanwhile, and goes on later."""
    with tmpfs(tmp_path / "disk", "128m") as disk:
        run = prepared(disk, tasks, "full", *TWO_STEPS)
        async with under_way(run) as task:
            filler = fill(disk)
            await until(lambda: task.done() or events(run, RunPaused))
            assert not task.done()
            (paused, *_) = events(run, RunPaused)
            assert str(run.directory.path) in paused.reason
            assert "free" in paused.reason
            if not ended:
                await asyncio.sleep(5.0)  # long enough for every trial to fail of it
                filler.unlink()
                await until(lambda: task.done() or events(run, RunResumed))
                end = await task
                assert end.status == "finished", end  # type: ignore[attr-defined]
        if ended:
            filler.unlink()
            await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "tbtui", "run", "--no-ui", "--resume", run.directory.path],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        assert (useful(run), rewards(run)) == calm


@needs_root
def test_a_full_disk_of_the_users_own_state_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tmpfs(tmp_path / "state", "1m") as state:
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        fill(state)
        done = tbtui("run", "--no-ui", "max_steps=1", f"logs_dir={tmp_path / 'runs'}")
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"failed: {state}/tbtui/boxes/"), done
    assert last.endswith(".json: No space left on device (see log.txt)")
    assert (done.returncode, done.stderr) == (1, "")


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
    with server_process(tmp_path / "server") as (url, server):
        asked = (
            *("policy=tinker", "model_name=starter", "renderer=embedded", "max_retries=0"),
            *(f"tinker_base_url={url}", "max_steps=2"),
        )
        whole = await finished(tmp_path, tasks, *asked)
        run = prepared(tmp_path, tasks, "stopped", *asked, "halt_after=1", "sample_timeout_sec=5")
        async with under_way(run) as task:
            with stopped(server):
                await until(lambda: task.done() or events(run, RunPaused))
                assert not task.done()
            end = await task
        assert end.status == "finished", end  # type: ignore[attr-defined]
        assert not {Outcome.AGENT_TIMEOUT} & outcomes(run) - outcomes(whole)
        assert useful(run) == useful(whole)


SERVE_APART = """
import asyncio, socket, sys
from pathlib import Path
from tests.tinker_server.faults import Faults
from tests.tinker_server.server import TinkerServer
from tests.tinker_server.settings import ServerSettings

sock = socket.create_server(("127.0.0.1", 0))
server = TinkerServer(ServerSettings(Path(sys.argv[1])), Faults())
asyncio.run(server.serve(sock, lambda: print(sock.getsockname()[1], flush=True)))
"""


@contextlib.contextmanager
def server_process(state_dir: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A Tinker server as a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE_APART, str(state_dir)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate()


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
