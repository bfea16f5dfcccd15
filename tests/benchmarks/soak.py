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
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import psutil

from tbtui.catalog.load import TaskInfo, load_task
from tbtui.config import RunConfig
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.plan import plan_groups
from tbtui.engines.grpo.rollouts import GroupPlan
from tbtui.engines.grpo.trials import TrialRunner, TrialSettings
from tbtui.engines.trials.attempts import Place
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import SampleRequest
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.cgroups import find_cgroups
from tbtui.rollout.environments.choose import choose_environment
from tbtui.rollout.environments.ledger import state_directory
from tbtui.rollout.messages import EnvironmentSpec
from tbtui.rollout.pool import WorkerPool
from tests.engines.fakes import RotePolicy

AT_ONCE, WORKERS = 8, 2
SETTLED = 50
"""Trials until caches and pools have their size."""
MOST_GROWTH = 0.10
TASK = tasks_dir() / "starter" / "copy-01"
_ACT = (
    '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": '
    '"cp /app/readme.md /app/alpha.txt\\n", "duration": 0.0}]}'
)
_DONE = '{"analysis": "a", "plan": "p", "commands": [], "task_complete": true}'


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
        self._root = root
        self._seen: dict[int, psutil.Process] = {}
        """Everything that ever descended from this process."""
        self._directory = RunDirectory.create(root / "run")
        self._journal = JournalWriter(self._directory)
        self._policy = RotePolicy(_answer)
        config = RunConfig(
            max_turns=8,
            max_tokens=512,
            max_retries=0,
            n_parallel_envs=AT_ONCE,
            sample_timeout_sec=600.0,
            retry_wait_sec=0.0,
            halt_after=0,
        )
        settings = TrialSettings(
            config,
            outcome_policy(config.on_outcome),
            trials_dir=self._directory.trials,
            environment=environment,
            model_name="rote",
            context_limit=32_768,
        )
        self._runner = TrialRunner(
            settings,
            self._policy,
            self._journal,
            lambda runner: WorkerPool(
                WORKERS, root / "logs", runner.on_message, runner.on_worker_lost
            ),
        )

    async def run(self) -> Report:
        pool = self._runner.pool
        before = _open_files(os.getpid())
        await pool.start()
        plans = _plans(self._report.trials)
        done = 0
        files: dict[int, list[str]] = {}
        known: set[int] = set()
        size = min(SETTLED, -(-len(plans) // 2))
        for first in range(0, len(plans), size):
            batch = plans[first : first + size]
            await self._batch(batch, first)
            done += len(batch)
            # A worker that has replaced another may still be importing: it counts from next time.
            now = {pid: f"worker {n}" for n, pid in pool.pids.items()}
            settled = {pid: name for pid, name in now.items() if pid in known or first == 0}
            known |= set(now)
            self._measure(done, settled)
            for pid, name in settled.items():
                self._compare(name, files.setdefault(pid, _open_files(pid)), pid)
                self._report.left += _mounts(pid, self._root)
        workers = list(pool.pids.values())
        await pool.stop()
        self._journal.close()
        self._compare("engine", before, os.getpid())
        self._report.left += _mounts(os.getpid(), self._root)
        self._report.left += self._left_processes() + _left_groups({os.getpid(), *workers})
        self._report.left += self._left_files()
        return self._report

    async def _batch(self, plans: Sequence[GroupPlan], first: int) -> None:
        """So many trials, eight at once; on return no trial runs, so all can be counted."""

        async def one(number: int, plan: GroupPlan) -> None:
            rollout = await self._runner.run(Place(plan.trials[0]))
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

    def _compare(self, whose: str, before: Sequence[str], pid: int) -> None:
        now = Counter(_open_files(pid))
        extra = [f"{name} x{n}" for name, n in (now - Counter(before)).items()]
        if sum((now - Counter(before)).values()) > sum((Counter(before) - now).values()):
            self._report.left.append(f"open files of {whose}: {', '.join(extra)}")

    def _left_processes(self) -> list[str]:
        _, alive = psutil.wait_procs(list(self._seen.values()), timeout=5)
        return [f"process {p.pid} {' '.join(p.cmdline())[:80]}" for p in alive]

    def _left_files(self) -> list[str]:
        left = [str(path) for path in state_directory().iterdir()]
        for place in ("tmp", "runtime"):
            left += [str(path) for path in (self._root / place).rglob("*")]
        odd = (p for p in self._directory.trials.rglob("*") if _is_odd(p))
        return left + [str(path) for path in odd]


def _is_odd(path: Path) -> bool:
    plain = not path.is_symlink() and (path.is_file() or path.is_dir())
    return not plain or path.name.endswith(".partial") or path.name.startswith(".logs-")


def _answer(request: SampleRequest) -> str:
    """The first turn's prompt is one message; a later one has our own answer in it."""
    prompt = "".join(map(chr, request.prompt_ids))
    return _DONE if '"duration": 0.0' in prompt else _ACT


def _plans(trials: int) -> tuple[GroupPlan, ...]:
    task, defects = load_task(TASK, "starter")
    if task is None:
        raise SystemExit(f"{TASK}: {defects}")
    tasks: list[TaskInfo] = [task] * trials
    return plan_groups(tasks, step=1, size=1, purpose="train", temperature=1.0, seed=1)


def _open_files(pid: int) -> list[str]:
    """What each descriptor of a process is, without the numbers that make it unique."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()).partition(":[")[0].split(" (deleted)")[0])
        except FileNotFoundError:
            continue
    return sorted(found)


def _mounts(pid: int, root: Path) -> list[str]:
    """Those of ours: other programs of the host may mount what they like meanwhile."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [line for line in lines if str(root) in line or " - tmpfs box " in line]


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


def _left_groups(owners: set[int]) -> list[str]:
    parents = set(find_cgroups().parents.values())
    groups = [group for parent in parents for group in parent.glob("tbtui-*")]
    return [f"control group {g}" for g in groups if g.name.split("-")[-2] in map(str, owners)]


async def soak(
    trials: int, environment: str = "sandbox", fault_every: int = 0, root: Path | None = None
) -> Report:
    """Runs the trials; what is temporary or runtime state lies below `root` meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tbtui-soak-") as folder:
        place = root or Path(folder)
        for name, variable in (
            ("tmp", "TMPDIR"),
            ("runtime", "XDG_RUNTIME_DIR"),
            ("state", "XDG_STATE_HOME"),
        ):
            (place / name).mkdir(mode=0o700)
            os.environ[variable] = str(place / name)
        tempfile.tempdir = None  # look at TMPDIR again
        choice = choose_environment(environment)
        spec = EnvironmentSpec(choice.type, choice.import_path, choice.kwargs)
        there = await asyncio.to_thread(_engine_objects, environment)
        report = await _Soak(place, spec, trials, fault_every).run()
        now = await asyncio.to_thread(_engine_objects, environment)
        report.left += sorted(now - there)
        return report


def main() -> int:
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
