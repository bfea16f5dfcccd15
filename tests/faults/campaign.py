"""Runs trials with faults through the real runner, pool and sandbox, and judges each attempt."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.events import (
    Entry,
    Outcome,
    TrialFinished,
    TrialPhaseChanged,
    TrialRetried,
    WorkerLost,
    WorkerStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.messages import EnvironmentSpec
from tbtui.rollout.pool import WorkerPool
from tests.faults.cases import INFRASTRUCTURE, Case
from tests.faults.environment import IMPORT_PATH, attempt_of, write_orders
from tests.faults.harness import make_task, plan_trial, trial_runner
from tests.faults.leaks import LeakWatch, open_descriptors
from tests.faults.policy import TAG, FaultyPolicy

STUCK_SEC = 100.0
"""A trial that has no outcome by then never will."""
SILENCE_SEC = 5.0
SAMPLE_TIMEOUT_SEC = 3.0
MAX_RETRIES = 1
CONTEXT_LIMIT = 1_000_000
"""Room for six completions of 100,000 characters."""
_IDLE_DESCRIPTORS = 8
"""A worker may keep so many more than when it was new: threads' pipes, caches."""


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """A worker is ended when so many trials have an outcome."""

    after: int
    number: signal.Signals


@dataclass(slots=True)
class Row:
    """A line of the table: one kind of trial."""

    name: str
    expected: str
    trials: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    invented: int = 0
    retries: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def median_sec(self) -> float:
        return statistics.median(self.seconds) if self.seconds else 0.0


@dataclass(slots=True)
class Report:
    rows: list[Row]
    leaks: dict[str, list[str]]
    kills: int
    seconds: float

    @property
    def complaints(self) -> list[str]:
        """Everything that is not as it must be, one line each."""
        found = [f"{row.name}: {wrong}" for row in self.rows for wrong in row.wrong]
        found += [f"leak of {kind}: {one}" for kind, left in self.leaks.items() for one in left]
        return found


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
def _surroundings(folder: Path) -> Iterator[None]:
    """Temporary files and the ledger under `folder`; the workers can import this package."""
    (folder / "tmp").mkdir()
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    changes = {"TMPDIR": f"{folder}/tmp", "XDG_STATE_HOME": f"{folder}/state", "PYTHONPATH": path}
    before = {name: os.environ.get(name) for name in changes}
    directory, tempfile.tempdir = tempfile.tempdir, changes["TMPDIR"]
    os.environ.update(changes)
    try:
        yield
    finally:
        tempfile.tempdir = directory
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
                build_sec=case.build_sec,
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
        with _surroundings(self._folder):
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
        judge = _Judge(directory, self._cases, self._killed, self._unfinished)
        rows = judge.rows(rewards)
        leaks = watch.found(judge.workers)
        leaks["descriptors"] += idle
        return Report(rows, leaks, len(self._killed), seconds)

    async def _trial(
        self, runner: TrialRunner[WorkerPool], plan: TrialPlan
    ) -> tuple[str, float | None]:
        name = plan.trial_id(1)
        running = asyncio.ensure_future(runner.run(plan))
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
        if more > _IDLE_DESCRIPTORS
    ]


class _Judge:
    """Reads the journal and holds it against what had to come."""

    def __init__(
        self,
        directory: RunDirectory,
        cases: dict[str, Case],
        killed: set[int],
        unfinished: dict[str, str],
    ) -> None:
        self._directory = directory
        self._cases = cases
        self._unfinished = unfinished
        self._finished: dict[str, list[TrialFinished]] = defaultdict(list)
        self._successors: dict[str, str] = {}
        self._spans: dict[str, list[float]] = defaultdict(list)
        self._lost: set[str] = set()
        """Trials that went down with a worker that we ended."""
        self._strange: list[str] = []
        self.workers: set[int] = set()
        reader = JournalReader(directory)
        for entry in self._entries(reader):
            match entry.event:
                case TrialFinished() as event:
                    self._finished[event.trial].append(event)
                    self._spans[event.trial].append(entry.time)
                case TrialPhaseChanged() as event:
                    self._spans[event.trial].append(entry.time)
                case TrialRetried() as event:
                    self._successors[event.trial] = event.successor
                case WorkerStarted() as event:
                    self.workers.add(event.pid)
                case WorkerLost() as event if event.pid in killed:
                    self._lost.update(event.trials)
                case WorkerLost() as event:
                    self._strange.append(f"worker {event.pid} lost by itself: {event.reason}")
        reader.close()

    def _entries(self, reader: JournalReader) -> Iterator[Entry]:
        for seq in range(reader.last_seq()):
            try:
                yield from reader.read(seq, 1)
            except ValidationError as error:
                self._strange.append(f"entry {seq + 1} of the journal can't be read: {error}")

    def rows(self, rewards: dict[str, float | None]) -> list[Row]:
        rows: dict[str, Row] = {}
        lost = Row("worker killed or stopped", "sandbox_lost")
        for name, case in self._cases.items():
            row = rows.setdefault(case.name, Row(case.name, _expectation(case)))
            row.trials += 1
            if name in self._unfinished:
                row.wrong.append(f"{name} {self._unfinished[name]}")
                row.seen["NO OUTCOME"] += 1
                continue
            self._judge_trial(name, case, rewards[name], row, lost)
        lost.trials = sum(lost.seen.values())
        lost.wrong += self._strange
        return [*rows.values(), lost]

    def _judge_trial(
        self, name: str, case: Case, reward: float | None, row: Row, lost: Row
    ) -> None:
        trial: str | None = name
        last: TrialFinished | None = None
        while trial is not None:
            ends = self._finished.get(trial, [])
            if len(ends) != 1:
                row.wrong.append(f"{trial} finished {len(ends)} times")
                return
            last = ends[0]
            mine = lost if trial in self._lost else row
            mine.seen[last.outcome.value] += 1
            spans = self._spans[trial]
            mine.seconds.append(max(spans) - min(spans))
            self._judge_attempt(trial, case, last, mine)
            successor = self._successors.get(trial)
            if successor is not None:
                row.retries += 1
                if (
                    not (self._directory.trials / trial).is_dir()
                    and mine is row
                    and (last.outcome is not Outcome.SETUP_ERROR)
                ):
                    row.wrong.append(f"{trial}: the evidence is gone")
            elif last.outcome in INFRASTRUCTURE and attempt_of(trial)[1] <= MAX_RETRIES:
                row.wrong.append(f"{trial}: {last.outcome} was not retried")
            trial = successor
        if last is not None and last.reward != reward:
            row.wrong.append(f"{name}: journal says reward {last.reward}, the rollout {reward}")

    def _judge_attempt(self, trial: str, case: Case, end: TrialFinished, row: Row) -> None:
        allowed = self._allowed(trial, case)
        if (end.outcome, end.reward) in allowed:
            return
        wanted = " or ".join(f"{outcome} {reward}" for outcome, reward in allowed)
        row.wrong.append(f"{trial}: {end.outcome} {end.reward} ({end.reason}); wanted {wanted}")
        if end.reward is not None and end.reward not in {reward for _, reward in allowed}:
            row.invented += 1

    def _allowed(self, trial: str, case: Case) -> list[tuple[Outcome, float | None]]:
        if trial in self._lost:
            return [(Outcome.SANDBOX_LOST, None)]
        hit: list[tuple[Outcome, float | None]] = [(o, case.reward) for o in case.outcomes]
        solved: tuple[Outcome, float | None] = (Outcome.SOLVED, 1.0)
        if not case.transient:
            return hit
        if case.fault is None:
            # Once among all attempts, and tbtui may ask again within the same one.
            return [*hit, solved]
        return hit if attempt_of(trial)[1] == 1 else [solved]


def _expectation(case: Case) -> str:
    names = "|".join(sorted(outcome.value for outcome in case.outcomes))
    reward = "" if case.reward is None else f" {case.reward:g}"
    return f"{names}{reward}{', then solved' if case.transient else ''}"


def table(report: Report) -> str:
    lines = [
        f"{'fault':26}{'trials':>6}  {'outcomes seen':44}{'expected':34}"
        f"{'wrong':>6}{'invented':>9}{'retries':>8}{'p50 s':>7}"
    ]
    for row in report.rows:
        seen = ", ".join(f"{count} {outcome}" for outcome, count in row.seen.most_common())
        lines.append(
            f"{row.name:26}{row.trials:>6}  {seen:44}{row.expected:34}"
            f"{len(row.wrong):>6}{row.invented:>9}{row.retries:>8}{row.median_sec:>7.2f}"
        )
    rows = report.rows
    lines.append(
        f"{'total':26}{sum(row.trials for row in rows[:-1]):>6}  {'':78}"
        f"{sum(len(row.wrong) for row in rows):>6}{sum(row.invented for row in rows):>9}"
        f"{sum(row.retries for row in rows):>8}"
    )
    leaks = ", ".join(f"{kind} {len(left)}" for kind, left in report.leaks.items())
    lines.append(f"left behind: {leaks}")
    lines.append(f"{report.kills} workers killed or stopped; {report.seconds:.0f} s")
    return "\n".join(lines)
