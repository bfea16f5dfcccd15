"""Runs trials with faults through the real runner, pool and sandbox, and judges each attempt."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tbtui.engines.grpo.rollouts import TrialPlan
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.engines.trials.attempts import Place
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.messages import EnvironmentSpec
from tbtui.rollout.pool import WorkerPool
from tests.faults.cases import Case
from tests.faults.environment import IMPORT_PATH, write_orders
from tests.faults.harness import plan_trial, trial_runner
from tests.faults.judge import MAX_RETRIES, Judge
from tests.faults.leaks import LeakWatch, open_descriptors
from tests.faults.policy import TAG, FaultyPolicy
from tests.faults.report import Report
from tests.tasks import make_task

STUCK_SEC = 100.0
"""A trial that has no outcome by then never will."""
SILENCE_SEC = 5.0
SAMPLE_TIMEOUT_SEC = 3.0
CONTEXT_LIMIT = 1_000_000
"""Room for six completions of 100,000 characters."""
IDLE_DESCRIPTORS = 8
"""A worker may keep so many more than when it was new: threads' pipes, caches."""


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """A worker is ended when so many trials have an outcome."""

    after: int
    number: signal.Signals


def choose(cases: Sequence[Case], trials: int, rng: random.Random) -> list[Case]:
    """Every case once, then cases by weight, in random order."""
    chosen = list(cases)[:trials]
    weights = [case.weight for case in cases]
    chosen += rng.choices(list(cases), weights, k=max(0, trials - len(chosen)))
    rng.shuffle(chosen)
    return chosen


def kills_among(trials: int, rng: random.Random, kill: int, stop: int) -> list[WorkerKill]:
    """`kill` workers killed and `stop` workers stopped, at random moments of the middle."""
    numbers = [signal.SIGKILL] * kill + [signal.SIGSTOP] * stop
    rng.shuffle(numbers)
    moments = sorted(rng.randrange(trials // 10, trials * 8 // 10) for _ in numbers)
    return [WorkerKill(after, number) for after, number in zip(moments, numbers, strict=True)]


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Temporary files and the ledger under `folder`; the workers can import this package."""
    (folder / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", f"{folder}/tmp")
        patch.setenv("XDG_STATE_HOME", f"{folder}/state")
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]), prepend=os.pathsep)
        patch.setattr(tempfile, "tempdir", f"{folder}/tmp")
        yield


class Campaign:
    """One run. `folder` is empty and gets everything."""

    def __init__(
        self,
        folder: Path,
        cases: Sequence[Case],
        *,
        seed: int,
        n_parallel: int,
        n_workers: int = 2,
        kills: Sequence[WorkerKill] = (),
    ) -> None:
        self._folder = folder
        self._cases: dict[str, Case] = {}
        """First attempt -> what it is."""
        self._plans: list[TrialPlan] = []
        self._seed = seed
        self._n_parallel = n_parallel
        self._n_workers = n_workers
        self._kills = list(kills)
        self._killed: set[int] = set()
        self._ended = 0
        self._unfinished: dict[str, str] = {}
        """Trials without an outcome, and what became of them."""
        self._rng = random.Random(seed)
        scripts = {}
        orders = {}
        for number, case in enumerate(cases):
            task = f"{case.name.translate(_SLUG)}-{number}"
            path = make_task(
                folder / "tasks" / task,
                instruction=f"Create the file /app/hello.txt that says hi. {TAG}{task} ",
                test=case.test,
                agent_sec=case.agent_sec,
                verifier_sec=case.verifier_sec,
                environment=f"build_timeout_sec = {case.build_sec}\nstorage_mb = 64\n",
            )
            plan = plan_trial(path, seed + number)
            self._plans.append(plan)
            self._cases[plan.trial_id(1)] = case
            scripts[task] = case.script
            if case.order is not None:
                orders[plan.trial_id(1)] = case.order
        self._policy = FaultyPolicy(scripts, CONTEXT_LIMIT)
        write_orders(folder / "orders.json", orders)

    async def run(self) -> Report:
        with surroundings(self._folder):
            return await self._run()

    async def _run(self) -> Report:
        watch = LeakWatch(self._folder)
        directory = RunDirectory.create(self._folder / "run")
        began = asyncio.get_running_loop().time()
        with JournalWriter(directory) as journal:
            runner = trial_runner(
                directory,
                self._policy,
                journal,
                n_parallel=self._n_parallel,
                n_workers=self._n_workers,
                max_retries=MAX_RETRIES,
                environment=EnvironmentSpec(
                    None, IMPORT_PATH, {"orders": str(self._folder / "orders.json")}
                ),
                silence_sec=SILENCE_SEC,
                sample_timeout_sec=SAMPLE_TIMEOUT_SEC,
                worker_module="tests.faults.worker",
            )
            await runner.pool.start()
            try:
                fresh = {pid: open_descriptors(pid) for pid in runner.pool.pids.values()}
                rewards = dict(
                    await asyncio.gather(*(self._trial(runner, plan) for plan in self._plans))
                )
                idle = _descriptor_growth(runner.pool, min(fresh.values()))
            finally:
                await runner.pool.stop()
        seconds = asyncio.get_running_loop().time() - began
        judge = Judge(directory, self._cases, self._killed, self._unfinished)
        rows = judge.rows(rewards)
        leaks = watch.found(judge.workers)
        leaks["descriptors"] += idle
        return Report(rows, leaks, len(self._killed), seconds)

    async def _trial(
        self, runner: TrialRunner[WorkerPool], plan: TrialPlan
    ) -> tuple[str, float | None]:
        name = plan.trial_id(1)
        running = asyncio.ensure_future(runner.run(Place(plan)))
        done, _ = await asyncio.wait((running,), timeout=self._patience())
        reward = None
        if done and (error := running.exception()) is not None:
            self._unfinished[name] = f"ended the run: {error!r}"
        elif done:
            reward = running.result().reward
        else:
            self._unfinished[name] = "never ended"
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        self._ended += 1
        await self._kill_workers(runner.pool)
        return name, reward

    def _patience(self) -> float:
        waves = -(-len(self._plans) // self._n_parallel)
        return STUCK_SEC + 5 * waves

    async def _kill_workers(self, pool: WorkerPool) -> None:
        while self._kills and self._ended >= self._kills[0].after:
            kill = self._kills.pop(0)
            pids = [pid for pid in pool.pids.values() if pid not in self._killed]
            if pids:
                pid = self._rng.choice(pids)
                self._killed.add(pid)
                os.kill(pid, kill.number)


_SLUG = str.maketrans(dict.fromkeys(" :,.()", "-"))


def _descriptor_growth(pool: WorkerPool, fresh: int) -> list[str]:
    growth = {pid: open_descriptors(pid) - fresh for pid in pool.pids.values()}
    return [
        f"worker {pid} has {more} more than when it was new"
        for pid, more in growth.items()
        if more > IDLE_DESCRIPTORS
    ]
