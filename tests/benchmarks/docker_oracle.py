"""Oracle trials in Docker: Harbor's own environment and ours, side by side in one run.

    python tests/benchmarks/docker_oracle.py [trials] [concurrency]

Prints the wall time of both and their ratio. The images' layers are built before, for both. The
two take turns in halves (theirs, ours, ours, theirs): a change of the machine's load meets both.
"""

from __future__ import annotations

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import asyncio
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

from tbtui.resources import tasks_dir

SIDES: dict[str, dict[str, Any]] = {
    "bare Harbor": {"type": "docker"},
    "tbtui": {"import_path": "tbtui.rollout.environments.docker:DockerEnvironment"},
}
TARGET = 0.6


async def run_trial(environment: dict[str, Any], task: Path, folder: Path, name: str) -> None:
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=folder,
            trial_name=name,
            agent=AgentConfig(name="oracle"),
            environment=EnvironmentConfig(**environment),
        )
    )
    result = await trial.run()
    rewards = result.verifier_result.rewards if result.verifier_result else None
    if rewards != {"reward": 1.0}:
        raise SystemExit(f"{name}: {rewards}, {result.exception_info}")


async def run_side(side: str, trials: int, concurrency: int, folder: Path, turn: int) -> float:
    """Seconds for so many trials."""
    tasks = itertools.cycle(sorted((tasks_dir() / "starter").glob("*-01")))
    gate = asyncio.Semaphore(concurrency)

    async def gated(number: int, task: Path) -> None:
        async with gate:
            name = f"{side.split()[0].lower()}-{turn}-{number}"
            await run_trial(SIDES[side], task, folder, name)

    began = time.monotonic()
    await asyncio.gather(*(gated(number, next(tasks)) for number in range(trials)))
    return time.monotonic() - began


async def main(trials: int, concurrency: int) -> None:
    seconds = dict.fromkeys(SIDES, 0.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in SIDES:  # layers are built, modules imported
            await run_side(side, trials // 2, concurrency, folder, 0)
        theirs, ours = SIDES
        for turn, side in enumerate((theirs, ours, ours, theirs), start=1):
            seconds[side] += await run_side(side, trials // 2, concurrency, folder, turn)
    for side, spent in seconds.items():
        print(f"{side:12} {trials} oracle trials, {concurrency} at a time: {spent:6.1f} s")
    ratio = seconds[ours] / seconds[theirs]
    print(f"ratio        {ratio:.2f} (wanted: <= {TARGET})")
    raise SystemExit(ratio > TARGET)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    asyncio.run(main(*(given + [8, 2][len(given) :])))
