"""Many long trials at once: `python tests/benchmarks/many_turns.py [--trials 32] [--turns 10]`.

The same trials, the same sandbox and an instant scripted model, twice:

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
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

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
    from tests.faults.harness import make_task

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


async def bare(folder: Path, trials: int, turns: int) -> dict[str, float]:
    from harbor.agents.terminus_2.terminus_2 import Terminus2
    from harbor.llms.base import BaseLLM, LLMResponse
    from harbor.models.metric import UsageInfo
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    logging.getLogger("harbor").setLevel(logging.ERROR)

    class Scripted(BaseLLM):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._answers = iter(script(turns))

        async def call(self, prompt: str, **kwargs: Any) -> LLMResponse:
            usage = UsageInfo(prompt_tokens=1, completion_tokens=1, cache_tokens=0, cost_usd=0.0)
            return LLMResponse(content=next(self._answers), usage=usage)

        def get_model_context_limit(self) -> int:
            return CONTEXT

        def get_model_output_limit(self) -> int | None:
            return 512

    class ScriptedTerminus(Terminus2):
        def _init_llm(self, *args: Any, **kwargs: Any) -> BaseLLM:
            return Scripted()

    # Harbor builds an agent from an import path.
    globals()["ScriptedTerminus"] = ScriptedTerminus
    task = task_of(folder / "task", turns)

    async def run(name: str) -> float | None:
        config = TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=folder / "trials",
            trial_name=name,
            agent=AgentConfig(
                import_path=f"{__name__}:ScriptedTerminus",
                model_name="scripted/model",
                kwargs={
                    "max_turns": turns + 2,
                    "record_terminal_session": False,
                    "enable_summarize": False,
                    "suppress_max_turns_warning": True,
                },
            ),
            environment=EnvironmentConfig(import_path=SANDBOX),
        )
        result = await (await Trial.create(config)).run()
        rewards = result.verifier_result.rewards if result.verifier_result else None
        return rewards["reward"] if rewards else None

    await run("warm-up")
    before = cpu_seconds()
    wall, lags = await gathered(run, trials)
    return figures(wall, lags, cpu_seconds() - before)


async def ours(folder: Path, trials: int, turns: int, workers: int) -> dict[str, float]:
    import psutil

    from tbtui.engines.trials.attempts import Place
    from tbtui.journal.rundir import RunDirectory
    from tbtui.journal.writer import JournalWriter
    from tests.faults.harness import plan_trial, trial_runner

    plan = plan_trial(task_of(folder / "task", turns), seed=0)
    directory = RunDirectory.create(folder / "run")
    policy = FaultyPolicy({"all": script(turns)}, CONTEXT)
    with JournalWriter(directory) as journal:
        runner = trial_runner(
            directory, policy, journal, n_parallel=trials, n_workers=workers, max_turns=turns + 2
        )
        await runner.pool.start()

        async def run(name: str) -> float | None:
            return (await runner.run(Place(dataclasses.replace(plan, group=name)))).reward

        await all_ready(directory, workers)
        await asyncio.gather(*(run(f"warm-up-{number}") for number in range(workers)))
        times = [psutil.Process(pid).cpu_times() for pid in runner.pool.pids.values()]
        spent = sum(t.user + t.system + t.children_user + t.children_system for t in times)
        before = cpu_seconds() + spent
        wall, lags = await gathered(run, trials)
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--side", choices=["bare", "tbtui"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        sys.exit(0 if compare(options) else 1)
    with tempfile.TemporaryDirectory() as folder:
        if options.side == "bare":
            work = bare(Path(folder), options.trials, options.turns)
        else:
            work = ours(Path(folder), options.trials, options.turns, options.workers)
        print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
