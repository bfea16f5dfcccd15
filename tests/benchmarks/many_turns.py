"""Trials by Harbor alone and by tbtui: `python tests/benchmarks/many_turns.py [--trials 32]
[--turns 10] [--environment sandbox]`.

The same trials at once, in the same environment, with an instant scripted model, twice (in Docker
by Harbor's own environment and by ours):

- bare: `harbor.trial.trial.Trial.run()` with stock Terminus-2, gathered on one event loop,
- tbtui: `TrialRunner` and `WorkerPool` with two workers, journal and recordings on.

Each side is measured in a process of its own, imports and a warm-up trial not counted, and the
sides take turns, so that both see the same machine. Medians are compared. The figure to reach is
a ratio of at most 0.6, and a p99 of the engine's loop lag of at most 50 ms. The lag is what a timer
of 10 ms is late: noise of the machine included.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import argparse
import asyncio
import dataclasses
import json
import logging
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests import session
from tests.faults.policy import TAG, FaultyPolicy

if TYPE_CHECKING:
    from tbtui.journal.rundir import RunDirectory

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = "tbtui.rollout.environments.sandbox:SandboxEnvironment"
DURATIONS = (0.0, 0.05, 0.1)
"""Seconds that a command may take, in turn."""
LAG_TICK_SEC = 0.01
CONTEXT = 200_000


def act(*keystrokes: str, duration: float = 0.0, done: bool = False) -> str:
    commands = [{"keystrokes": keys, "duration": duration} for keys in keystrokes]
    answer = {"analysis": "a", "plan": "p", "commands": commands, "task_complete": done}
    return json.dumps(answer)


def script(turns: int) -> list[str]:
    """`turns` answers: a command a turn, and the end said twice, as Terminus-2 wants it."""
    work = [
        act(f"echo {turn} >> /app/log.txt\n", duration=DURATIONS[turn % len(DURATIONS)])
        for turn in range(turns - 2)
    ]
    return [*work, act(done=True), act(done=True)]


def task_of(folder: Path, turns: int) -> Path:
    from tests.tasks import make_task

    return make_task(
        folder,
        instruction=f"Count in /app/log.txt. {TAG}all ",
        test=f"[ $(wc -l < /app/log.txt) = {turns - 2} ] && echo 1 > $R || echo 0 > $R",
        agent_sec=600.0,
        verifier_sec=300.0,
    )


async def measure_lag(lags: list[float]) -> None:
    while True:
        due = time.perf_counter() + LAG_TICK_SEC
        await asyncio.sleep(LAG_TICK_SEC)
        lags.append(time.perf_counter() - due)


def cpu_seconds() -> float:
    """CPU seconds of this process and of all its children that have ended."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


async def gathered(
    run: Callable[[str], Awaitable[float | None]], trials: int
) -> tuple[float, list[float]]:
    """Wall seconds of all trials at once, and the lags of this loop meanwhile."""
    lags: list[float] = []
    watch = asyncio.create_task(measure_lag(lags))
    began = time.perf_counter()
    verdicts = await asyncio.gather(*(run(f"trial-{number}") for number in range(trials)))
    wall = time.perf_counter() - began
    watch.cancel()
    if wrong := [verdict for verdict in verdicts if verdict != 1.0]:
        raise SystemExit(f"{len(wrong)} of {trials} trials were not solved: {wrong[:5]}")
    return wall, lags


def figures(wall: float, lags: list[float], cpu: float) -> dict[str, float]:
    cuts = statistics.quantiles(lags, n=100, method="inclusive")
    return {"wall": wall, "cpu": cpu, "lag50": cuts[49], "lag99": cuts[98], "lagmax": max(lags)}


async def bare(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    from harbor.models.trial.config import EnvironmentConfig

    from tests.benchmarks.bare_harbor import run_bare

    logging.getLogger("harbor").setLevel(logging.ERROR)
    docker = options.environment == "docker"
    environment = EnvironmentConfig(**({"type": "docker"} if docker else {"import_path": SANDBOX}))
    task = task_of(folder / "task", options.turns)

    async def run(name: str) -> float | None:
        answers = script(options.turns)
        return await run_bare(name, task, folder / "trials", answers, environment)

    await run("warm-up")
    before = cpu_seconds()
    wall, lags = await gathered(run, options.trials)
    return figures(wall, lags, cpu_seconds() - before)


async def ours(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    import psutil

    from tbtui.engines.trials.attempts import Place
    from tbtui.journal.rundir import RunDirectory
    from tbtui.journal.writer import JournalWriter
    from tbtui.rollout.environments.choose import choose_environment
    from tbtui.rollout.messages import EnvironmentSpec
    from tests.faults.harness import plan_trial, trial_runner

    workers, turns = options.workers, options.turns
    choice = choose_environment(options.environment)
    plan = plan_trial(task_of(folder / "task", turns), seed=0)
    directory = RunDirectory.create(folder / "run")
    policy = FaultyPolicy({"all": script(turns)}, CONTEXT)
    with JournalWriter(directory) as journal:
        runner = trial_runner(
            directory,
            policy,
            journal,
            n_parallel=options.trials,
            n_workers=workers,
            max_turns=turns + 2,
            environment=EnvironmentSpec(choice.type, choice.import_path, choice.kwargs),
        )
        await runner.pool.start()

        async def run(name: str) -> float | None:
            return (await runner.run(Place(dataclasses.replace(plan, group=name)))).reward

        await all_ready(directory, workers)
        await asyncio.gather(*(run(f"warm-up-{number}") for number in range(workers)))
        times = [psutil.Process(pid).cpu_times() for pid in runner.pool.pids.values()]
        spent = sum(t.user + t.system + t.children_user + t.children_system for t in times)
        before = cpu_seconds() + spent
        wall, lags = await gathered(run, options.trials)
        await runner.pool.stop()
    return figures(wall, lags, cpu_seconds() - before)


async def all_ready(directory: RunDirectory, workers: int) -> None:
    """Wait until the journal shows all workers."""
    from tbtui.journal.events import WorkerStarted
    from tbtui.journal.reader import JournalReader

    reader = JournalReader(directory)
    started = 0
    while started < workers:
        await asyncio.sleep(0.05)
        entries = reader.read(0, 10_000)
        started = sum(isinstance(entry.event, WorkerStarted) for entry in entries)
    reader.close()


def in_own_process(side: str, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--side", side, "--trials", str(options.trials)]
    command += ["--turns", str(options.turns), "--workers", str(options.workers)]
    command += ["--environment", options.environment]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def compare(options: argparse.Namespace) -> bool:
    print(f"{options.trials} trials x {options.turns} turns at once, {options.workers} workers")
    columns = ("wall s", "CPU s", "lag p50 ms", "lag p99 ms", "lag max ms")
    print(f"{'':8}" + "".join(f"{name:>12}" for name in columns))
    runs: dict[str, list[dict[str, float]]] = {"bare": [], "tbtui": []}
    for _ in range(options.rounds):
        for side, measured in runs.items():
            measured.append(in_own_process(side, options))
            print(row(side, measured[-1]), flush=True)
    medians = {
        side: {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        for side, measured in runs.items()
    }
    print("medians")
    for side, median in medians.items():
        print(row(side, median))
    ratio = medians["tbtui"]["wall"] / medians["bare"]["wall"]
    lag = medians["tbtui"]["lag99"] * 1000
    print(f"wall time {ratio:.2f} of bare Harbor's (at most 0.60); "
          f"engine loop lag p99 {lag:.0f} ms (at most 50)")  # fmt: skip
    return ratio <= 0.6 and lag <= 50


def row(side: str, run: dict[str, float]) -> str:
    lags = "".join(f"{run[key] * 1000:>12.1f}" for key in ("lag50", "lag99", "lagmax"))
    return f"{side:8}{run['wall']:>12.2f}{run['cpu']:>12.2f}{lags}"


def main() -> None:
    session.begin()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--environment", choices=["sandbox", "docker"], default="sandbox")
    parser.add_argument("--side", choices=["bare", "tbtui"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        sys.exit(0 if compare(options) else 1)
    with tempfile.TemporaryDirectory() as folder:
        work = (bare if options.side == "bare" else ours)(options, Path(folder))
        print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
