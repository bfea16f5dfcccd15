"""The pool and the worker, in real processes, without Harbor."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tbtui.errors import UserError
from tbtui.rollout import pool
from tbtui.rollout.messages import Completion, Heartbeat, SampleWanted, TrialSpec
from tbtui.rollout.pool import WorkerRecycledInfo
from tbtui.rollout.worker import LogFormatter
from tests.rollout.scripted import SANDBOX, ScriptedEngine, Silence
from tests.waiting import until

pytestmark = pytest.mark.uid

NewEngine = Callable[..., ScriptedEngine]


@pytest.fixture
async def new_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NewEngine]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    engines = []

    def make(n_workers: int = 1, **options: Any) -> ScriptedEngine:
        options.setdefault("worker_module", "tests.rollout.fake_worker")
        engines.append(ScriptedEngine(tmp_path / "logs", n_workers, **options))
        return engines[-1]

    yield make
    for engine in engines:
        await engine.pool.stop()


@pytest.fixture
async def engine(new_engine: NewEngine) -> ScriptedEngine:
    """One with a worker."""
    engine = new_engine()
    await engine.pool.start()
    return engine


def spec(trial: str, behaviour: str) -> TrialSpec:
    return TrialSpec(trial, Path("/t"), Path("/t"), SANDBOX, behaviour, 5, 60.0, 4096, 512)


def test_what_a_worker_logs_is_short_and_plain() -> None:
    record = logging.makeLogRecord({"msg": "\x1b]0;title\x07\rfirst\n" + "x" * 1_000_000 + "last"})
    first, *_, last = LogFormatter().format(record).splitlines()
    assert first.endswith("␛]0;title␇")
    assert last.endswith("xlast")
    assert len(last) < 10_000


async def test_workers_may_open_more_files_than_their_parent(new_engine: NewEngine) -> None:
    engine = new_engine()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        await engine.pool.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (pid,) = engine.pool.pids.values()
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (min(hard, 1 << 16), hard)


async def test_trials_run_and_end(engine: ScriptedEngine) -> None:
    for number in range(5):
        engine.pool.start_trial(spec(f"t{number}", "instant"))
    for number in range(5):
        assert (await engine.facts(f"t{number}")).finish == "completed"
    assert await engine.until(
        lambda: next((m for _, m in engine.workers if isinstance(m, Heartbeat)), None)
    )


async def test_answers_reach_the_trial_that_asked(new_engine: NewEngine) -> None:
    engine = new_engine(2)
    await engine.pool.start()
    await engine.until_ready(2)
    trials = [f"t{number}" for number in range(8)]
    for trial in trials:
        engine.start(spec(trial, "ask"), [Silence()])
    wanted = [await engine.wait_for(trial, SampleWanted) for trial in trials]
    assert len({ask.request for ask in wanted}) == len(trials)
    for ask in reversed(wanted):
        assert engine.pool.reply(
            Completion(ask.request, ask.trial, f"for {ask.trial}", False, 1, 1)
        )
    for trial in trials:
        assert (await engine.facts(trial)).verifier_output == f"for {trial}"
    assert not engine.pool.reply(
        Completion(wanted[0].request, wanted[0].trial, "again", False, 1, 1)
    )


async def test_trials_are_spread_evenly(new_engine: NewEngine) -> None:
    engine = new_engine(2)
    await engine.pool.start()  # one is ready, the other perhaps not: it gets its share all the same
    for number in range(6):
        engine.pool.start_trial(spec(f"t{number}", "wait"))
    await engine.until_ready(2)
    loads = sorted(len(worker.trials) for worker in engine.pool._workers.values())
    assert loads == [3, 3]
    for number in range(6):
        assert engine.pool.control(f"t{number}", "stop")
        assert (await engine.facts(f"t{number}")).finish == "stopped"


async def test_a_trial_cancelled_before_it_began_is_told(engine: ScriptedEngine) -> None:
    engine.pool.start_trial(spec("t", "wait"))
    engine.pool.control("t", "cancel")
    assert (await engine.facts("t")).finish == "cancelled"
    assert not engine.pool.control("t", "cancel")


async def test_a_bug_of_ours_costs_one_trial(engine: ScriptedEngine) -> None:
    engine.pool.start_trial(spec("t", "bug"))
    facts = await engine.facts("t")
    assert (facts.finish, facts.exception_type) == ("error", "ZeroDivisionError")


async def test_a_killed_worker_loses_its_trials_and_has_a_successor(engine: ScriptedEngine) -> None:
    engine.pool.start_trial(spec("t", "wait"))
    (pid,) = engine.pool.pids.values()
    os.kill(pid, signal.SIGKILL)
    lost = await engine.until(lambda: engine.lost[0] if engine.lost else None)
    assert (lost.pid, lost.trials) == (pid, ("t",))
    assert "SIGKILL" in lost.reason
    engine.pool.start_trial(spec("t", "instant"))  # the same name again: nothing is left of it
    assert (await engine.facts("t")).finish == "completed"


async def test_a_crash_costs_only_the_trials_of_its_worker(new_engine: NewEngine) -> None:
    engine = new_engine(2)
    await engine.pool.start()
    await engine.until_ready(2)
    engine.pool.start_trial(spec("bystander", "wait"))
    engine.pool.start_trial(spec("culprit", "crash"))
    lost = await engine.until(lambda: engine.lost[0] if engine.lost else None)
    assert lost.trials == ("culprit",)
    assert "exit status 3" in lost.reason
    engine.pool.control("bystander", "stop")
    assert (await engine.facts("bystander")).finish == "stopped"


@pytest.mark.slow
async def test_a_silent_worker_is_killed(new_engine: NewEngine) -> None:
    engine = new_engine(silence_sec=2)
    await engine.pool.start()
    engine.pool.start_trial(spec("t", "hang"))
    lost = await engine.until(lambda: engine.lost[0] if engine.lost else None)
    assert lost.trials == ("t",)
    assert "silent" in lost.reason


@pytest.mark.slow
async def test_a_worker_that_has_run_its_trials_is_replaced(new_engine: NewEngine) -> None:
    recycled: list[WorkerRecycledInfo] = []
    engine = new_engine(max_trials=2, on_recycled=recycled.append)
    await engine.pool.start()
    (first,) = engine.pool.pids.values()
    engine.pool.start_trial(spec("old", "wait"))
    engine.pool.start_trial(spec("done", "instant"))
    await engine.facts("done")
    await engine.until_ready(2)  # its successor, while it still runs a trial
    assert first in engine.pool.pids.values()
    engine.pool.start_trial(spec("new", "wait"))
    homes = {trial: worker.process.pid for trial, worker in engine.pool._home.items()}
    assert homes["old"] == first
    assert homes["new"] != first
    assert not recycled
    engine.pool.control("old", "stop")
    assert (await engine.facts("old")).finish == "stopped"
    info = await engine.until(lambda: recycled[0] if recycled else None)
    assert (info.worker, info.pid, info.reason) == (1, first, "it has run 2 trials")
    assert first not in engine.pool.pids.values()
    engine.pool.control("new", "stop")
    assert (await engine.facts("new")).finish == "stopped"
    assert not engine.lost


@pytest.mark.slow
async def test_a_worker_that_grows_is_replaced(new_engine: NewEngine) -> None:
    recycled: list[WorkerRecycledInfo] = []
    engine = new_engine(2, max_mb=1, on_recycled=recycled.append)
    await engine.pool.start()
    await engine.until_ready(2)
    for number in range(2):
        engine.pool.start_trial(spec(f"t{number}", "instant"))
        await engine.facts(f"t{number}")
    info = await engine.until(lambda: recycled[0] if recycled else None)
    assert "MB" in info.reason
    for number in range(2, 6):
        engine.pool.start_trial(spec(f"t{number}", "instant"))
        await engine.facts(f"t{number}")
    assert not engine.lost


@pytest.mark.slow
async def test_a_worker_with_a_hanging_trial_is_replaced(new_engine: NewEngine) -> None:
    recycled: list[WorkerRecycledInfo] = []
    engine = new_engine(on_recycled=recycled.append)
    await engine.pool.start()
    engine.pool.start_trial(spec("t", "leave behind"))
    assert (await engine.facts("t")).finish == "sandbox_lost"
    info = await engine.until(lambda: recycled[0] if recycled else None)
    assert info.reason == "1 of its trials hang"
    assert not engine.lost


@pytest.mark.slow
async def test_the_loss_of_a_successor_is_made_good(new_engine: NewEngine) -> None:
    recycled: list[WorkerRecycledInfo] = []
    engine = new_engine(max_trials=1, on_recycled=recycled.append)
    await engine.pool.start()
    engine.pool.start_trial(spec("t", "instant"))
    await engine.facts("t")
    await until(lambda: len(engine.pool.pids) == 2)
    os.kill(max(engine.pool.pids.values()), signal.SIGKILL)
    lost = await engine.until(lambda: engine.lost[0] if engine.lost else None)
    assert lost.trials == ()
    await engine.until(lambda: recycled[0] if recycled else None)
    engine.pool.start_trial(spec("u", "instant"))
    assert (await engine.facts("u")).finish == "completed"


async def test_workers_that_cannot_start_are_an_error(new_engine: NewEngine) -> None:
    engine = new_engine(worker_module="no_such_worker_module")
    with pytest.raises(UserError, match="no_such_worker_module"):
        await engine.pool.start()
    assert not engine.pool.pids


async def test_an_exception_of_a_handler_reaches_the_engine(engine: ScriptedEngine) -> None:
    engine.pool._on_message = lambda worker, message: 1 / 0  # type: ignore[assignment,return-value]
    engine.pool.start_trial(spec("t", "instant"))
    with pytest.raises(ZeroDivisionError):
        await engine.pool.failed


async def test_a_waiting_trial_can_be_withdrawn(new_engine: NewEngine) -> None:
    engine = new_engine()
    engine.pool.start_trial(spec("t", "instant"))  # no worker yet
    with pytest.raises(ValueError, match="is running"):
        engine.pool.start_trial(spec("t", "instant"))
    assert engine.pool.withdraw("t")
    assert not engine.pool.withdraw("t")
    await engine.pool.start()


async def test_a_waiting_trial_can_be_cancelled(new_engine: NewEngine) -> None:
    engine = new_engine()
    engine.pool.start_trial(spec("t", "wait"))
    assert engine.pool.control("t", "cancel")
    await engine.pool.start()
    assert (await engine.facts("t")).finish == "cancelled"


@pytest.mark.parametrize("how", ["sigterm", "stop"])
async def test_workers_leave_when_told(engine: ScriptedEngine, how: str) -> None:
    engine.pool.start_trial(spec("t", "wait"))
    (pid,) = engine.pool.pids.values()
    if how == "sigterm":
        os.kill(pid, signal.SIGTERM)
        lost = await engine.until(lambda: engine.lost[0] if engine.lost else None)
        assert "exit status 0" in lost.reason
    await engine.pool.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def services() -> list[str]:
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith("rollout worker")]


async def kill_and_stop(
    engine: ScriptedEngine, halfway: asyncio.Event, go_on: asyncio.Event | threading.Event
) -> None:
    """Stop the pool while it is `halfway` in seeing to the end of its only worker."""
    (pid,) = engine.pool.pids.values()
    os.kill(pid, signal.SIGKILL)
    await halfway.wait()
    stopping = asyncio.create_task(engine.pool.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert not engine.pool.pids
    assert not services()


async def test_a_worker_that_is_lost_while_all_are_stopped_has_no_successor(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def reap_slowly(**_: Any) -> None:
        loop.call_soon_threadsafe(looking.set)
        go_on.wait()

    monkeypatch.setattr(pool, "reap_leftovers", reap_slowly)
    engine.pool.start_trial(spec("t", "wait"))
    await kill_and_stop(engine, looking, go_on)
    assert not engine.lost


async def test_a_worker_that_is_being_started_is_stopped(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting, go_on = asyncio.Event(), asyncio.Event()
    over = pool.Channel.over

    async def slowly(sock: socket.socket) -> Any:
        starting.set()
        await go_on.wait()
        return await over(sock)

    monkeypatch.setattr(pool.Channel, "over", slowly)
    await kill_and_stop(engine, starting, go_on)


@pytest.mark.slow
async def test_a_worker_leaves_when_its_engine_dies(tmp_path: Path) -> None:
    program = """
import asyncio, pathlib, sys
sys.path.insert(0, sys.argv[1])
from tests.rollout.scripted import ScriptedEngine
from tests.rollout.test_worker_pool import spec
async def main():
    engine = ScriptedEngine(pathlib.Path(sys.argv[2]), worker_module="tests.rollout.fake_worker")
    await engine.pool.start()
    engine.pool.start_trial(spec("t", "wait"))
    print(*engine.pool.pids.values(), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""
    here = str(Path(__file__).parents[2])
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, here, str(tmp_path),
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": here},
    )  # fmt: skip
    assert engine.stdout is not None
    pid = int(await engine.stdout.readline())
    engine.kill()
    await engine.wait()
    await until(lambda: not Path(f"/proc/{pid}").exists())


def test_the_engine_side_imports_no_harbor() -> None:
    program = (
        "import sys, tbtui.rollout.pool, tbtui.rollout.outcome, tbtui.rollout.worker\n"
        "sys.exit(bool({'harbor', 'litellm', 'textual'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
