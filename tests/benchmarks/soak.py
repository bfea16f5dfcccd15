"""Many short trials in a row: is memory flat, and is anything left behind?

`python tests/benchmarks/soak.py [--trials 500] [--environment sandbox] [--fault-every N]`

Through the real TrialRunner, WorkerPool and journal, eight at once, with a policy that answers at
once by script. With --fault-every, after every N trials something is killed in the middle: a
sandbox, then a worker, in turn. Exit status 1 if anything is left or memory grew by 10 % or more
after the first 50 trials.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import psutil

from tbtui.engines.grpo.rollouts import TrialPlan
from tbtui.engines.trials.attempts import Place
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import SampleRequest
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.choose import choose_environment
from tbtui.rollout.messages import EnvironmentSpec
from tests import session
from tests.engines.fakes import RotePolicy
from tests.faults.campaign import IDLE_DESCRIPTORS, surroundings
from tests.faults.harness import plan_trial, trial_runner
from tests.faults.leaks import LeakWatch, open_descriptors
from tests.rollout.scripted import DONE, act

AT_ONCE, WORKERS = 8, 2
SETTLED = 50
"""Trials until caches and pools have their size."""
MOST_GROWTH = 0.10
TASK = tasks_dir() / "starter" / "copy-01"
ACT = act("cp /app/readme.md /app/alpha.txt\n", duration=0.0)


@dataclass
class Memory:
    """Private memory in MiB, of one process after so many trials."""

    name: str
    samples: dict[int, float] = field(default_factory=dict)

    @property
    def growth(self) -> float | None:
        """Since the first sample after the first 50 trials, as a fraction; None: too few."""
        later = [mb for trials, mb in sorted(self.samples.items()) if trials >= SETTLED]
        return later[-1] / later[0] - 1 if len(later) > 1 else None


@dataclass
class Report:
    trials: int
    outcomes: Counter[str] = field(default_factory=Counter)
    memory: dict[int, Memory] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    @property
    def worst_growth(self) -> float:
        return max((m.growth for m in self.memory.values() if m.growth is not None), default=0.0)


class _Soak:
    def __init__(self, root: Path, environment: EnvironmentSpec, trials: int, faults: int) -> None:
        self._report = Report(trials)
        self._faults = faults
        self._watch = LeakWatch(root)
        self._seen: dict[int, psutil.Process] = {}
        """Everything that ever descended from this process."""
        directory = RunDirectory.create(root / "run")
        self._journal = JournalWriter(directory)
        self._policy = RotePolicy(_answer)
        self._runner = trial_runner(
            directory,
            self._policy,
            self._journal,
            n_parallel=AT_ONCE,
            n_workers=WORKERS,
            max_turns=8,
            environment=environment,
        )

    async def run(self) -> Report:
        pool = self._runner.pool
        await pool.start()
        plan = plan_trial(TASK, seed=1)
        plans = [replace(plan, group=f"group-{n}") for n in range(self._report.trials)]
        fresh: dict[int, int] = {}
        """Worker -> its descriptors after its first trials."""
        known: set[int] = set()
        size = min(SETTLED, -(-len(plans) // 2))
        for first in range(0, len(plans), size):
            batch = plans[first : first + size]
            await self._batch(batch, first)
            # A worker that has replaced another may still be importing: it counts from next time.
            now = {pid: f"worker {n}" for n, pid in pool.pids.items()}
            settled = {pid: name for pid, name in now.items() if pid in known or first == 0}
            known |= set(now)
            self._measure(first + len(batch), settled)
            for pid, name in settled.items():
                more = open_descriptors(pid) - fresh.setdefault(pid, open_descriptors(pid))
                if more > IDLE_DESCRIPTORS:
                    self._report.left.append(f"{name} has {more} descriptors more than before")
        workers = list(pool.pids.values())
        await pool.stop()
        self._journal.close()
        _, alive = psutil.wait_procs(list(self._seen.values()), timeout=5)
        self._report.left += [f"process {p.pid} {' '.join(p.cmdline())[:80]}" for p in alive]
        for what, left in self._watch.found([os.getpid(), *workers]).items():
            self._report.left += [f"{what}: {each}" for each in left]
        return self._report

    async def _batch(self, plans: Sequence[TrialPlan], first: int) -> None:
        """So many trials, eight at once; on return no trial runs, so all can be counted."""

        async def one(number: int, plan: TrialPlan) -> None:
            rollout = await self._runner.run(Place(plan))
            self._report.outcomes[str(rollout.outcome)] += 1
            self._look()
            # Not at the end of a batch, where those that run are counted.
            if self._faults and number % self._faults == 0 and number <= last - AT_ONCE:
                self._break_something(number // self._faults)

        last = first + len(plans)
        await asyncio.gather(*(one(first + i, plan) for i, plan in enumerate(plans, 1)))
        self._policy.requests.clear()
        # What has ended is nobody's leftover; kept, it would count as the engine's growth.
        self._seen = {pid: p for pid, p in self._seen.items() if p.is_running()}

    def _look(self) -> None:
        for process in psutil.Process().children(recursive=True):
            self._seen.setdefault(process.pid, process)

    def _break_something(self, turn: int) -> None:
        # One that has ended by itself meanwhile is as good as killed.
        with contextlib.suppress(psutil.NoSuchProcess):
            workers = [psutil.Process(pid) for pid in self._runner.pool.pids.values()]
            boxes = [child for worker in workers for child in worker.children()]
            victims = boxes if turn % 2 else workers
            if victims:
                victims[turn % len(victims)].kill()

    def _measure(self, done: int, workers: Mapping[int, str]) -> None:
        for pid, name in {os.getpid(): "engine", **workers}.items():
            memory = self._report.memory.setdefault(pid, Memory(name))
            memory.samples[done] = psutil.Process(pid).memory_full_info().uss / (1 << 20)
        memories = [m for m in self._report.memory.values() if done in m.samples]
        row = "   ".join(f"{m.name} {m.samples[done]:.1f}" for m in memories)
        print(f"{done:>5} trials   {row} MiB", flush=True)


def _answer(request: SampleRequest) -> str:
    """The first turn's prompt is one message; a later one has our own answer in it."""
    prompt = "".join(map(chr, request.prompt_ids))
    return DONE if '"duration": 0.0' in prompt else ACT


def _engine_objects(environment: str) -> set[str]:
    """Containers and networks of a container engine, where one runs the trials."""
    if environment not in {"docker", "podman"}:
        return set()
    found: set[str] = set()
    for what in (["ps", "-a"], ["network", "ls"]):
        command = [environment, *what, "--format", "{{.ID}}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found |= {f"{environment} {what[0]} {line}" for line in done.stdout.splitlines()}
    return found


async def soak(trials: int, environment: str, fault_every: int) -> Report:
    """Runs the trials; what is temporary or state lies in a directory of its own meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tbtui-soak-") as folder, surroundings(Path(folder)):
        choice = choose_environment(environment)
        spec = EnvironmentSpec(choice.type, choice.import_path, choice.kwargs)
        there = await asyncio.to_thread(_engine_objects, environment)
        report = await _Soak(Path(folder), spec, trials, fault_every).run()
        now = await asyncio.to_thread(_engine_objects, environment)
        report.left += sorted(now - there)
        return report


def main() -> int:
    session.begin()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--environment", default="sandbox")
    parser.add_argument("--fault-every", type=int, default=0)
    options = parser.parse_args()
    report = asyncio.run(soak(options.trials, options.environment, options.fault_every))
    print("outcomes:", ", ".join(f"{n} {name}" for name, n in report.outcomes.most_common()))
    for memory in report.memory.values():
        if memory.growth is not None:
            print(f"{memory.name}: {memory.growth:+.1%} after the first {SETTLED} trials")
    print("left behind:", "nothing" if not report.left else "")
    for thing in report.left:
        print("  ", thing)
    return 1 if report.left or report.worst_growth >= MOST_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
