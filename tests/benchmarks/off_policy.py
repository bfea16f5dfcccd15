"""What sampling ahead of training gains, and costs: off-policy by one step against synchronous.

`python tests/benchmarks/off_policy.py [SEED ...] [--median 2] [--spread 0.8] [--train 10]
[--modes sync,ahead] [KEY=VALUE ...]`

The embedded policy on the starter tasks, slowed to the latencies of a real service: every
completion takes a log-normal time (`--median` seconds, `--spread` the deviation of its logarithm:
at 0.8 one in a hundred takes 6.4 medians), drawn from the completion's own seed; every gradient
takes `--train` seconds; a step of the optimiser and publishing a fifth of that each. Both modes
get the same machine: `n_parallel_envs` has room for two batches. KEY=VALUE is any setting of the
run, for both modes; `max_steps=3` shows that it works.

Prints for each run the training rollouts per minute from the first one until the last step is
trained, without the time of evaluations, and the held-out pass rate at the end with its standard
error; then both modes side by side.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import argparse
import asyncio
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
import numpy.typing as npt

from tbtui.config import RunConfig, parse_settings
from tbtui.engines.prepare import prepare_run
from tbtui.engines.request import request_run
from tbtui.engines.run import Run, make_policy
from tbtui.journal.events import EvalFinished, EvalStarted, StepFinished, TrialFinished, TrialQueued
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import (
    Datum,
    Ended,
    GradientResult,
    LossSettings,
    OptimSettings,
    Policy,
    PolicyInfo,
    PolicyStatus,
    Renderer,
    Sample,
    SampleRequest,
    StepResult,
)

MODES = {"sync": "max_steps_off_policy=0", "ahead": "max_steps_off_policy=1"}
WANTED = 1.5


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds, but for `spread`."""

    median: float
    spread: float
    train: float

    def of_completion(self, seed: int) -> float:
        return random.Random(seed).lognormvariate(math.log(self.median), self.spread)


class SlowPolicy:
    """Another policy, whose answers are held back."""

    def __init__(self, policy: Policy, latency: Latency) -> None:
        self._policy = policy
        self._latency = latency
        self._in_turn = asyncio.Lock()
        """Orders are carried out one by one; those who wait for this lock get it in turn."""

    @property
    def info(self) -> PolicyInfo:
        return self._policy.info

    @property
    def renderer(self) -> Renderer:
        return self._policy.renderer

    async def start(self, resume: Path | None = None) -> None:
        await self._policy.start(resume)

    async def sample(self, request: SampleRequest) -> Sample:
        # Drawn first: the older the weights, the harder for training.
        return await self._slowly(
            self._policy.sample(request), self._latency.of_completion(request.seed)
        )

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        async with self._in_turn:
            return await self._slowly(self._policy.accumulate(data, loss), self._latency.train)

    async def apply(self, settings: OptimSettings) -> StepResult:
        async with self._in_turn:
            return await self._slowly(self._policy.apply(settings), self._latency.train / 5)

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        async with self._in_turn:
            return await self._slowly(self._policy.score(data, weights), self._latency.train / 2)

    async def publish(self) -> int:
        async with self._in_turn:
            return await self._slowly(self._policy.publish(), self._latency.train / 5)

    async def save(self, directory: Path) -> None:
        async with self._in_turn:
            await self._policy.save(directory)

    async def forget(self, directory: Path) -> None:
        await self._policy.forget(directory)

    async def load(self, directory: Path) -> None:
        async with self._in_turn:
            await self._policy.load(directory)

    def status(self) -> PolicyStatus:
        return self._policy.status()

    async def close(self, ended: Ended = "success") -> None:
        await self._policy.close(ended)

    async def _slowly[T](self, work: Awaitable[T], seconds: float) -> T:
        began = time.monotonic()
        result = await work
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))
        return result


@dataclass(frozen=True, slots=True)
class Measured:
    per_minute: float
    pass_rate: float
    scored: int
    staleness: float
    """Staleness of the trained tokens, in steps: the largest mean of any step."""

    @property
    def error(self) -> float:
        """Standard error of the pass rate."""
        return math.sqrt(self.pass_rate * (1 - self.pass_rate) / max(1, self.scored))


def slowed(latency: Latency) -> Callable[[RunConfig, IO[bytes]], Policy]:
    return lambda config, log: SlowPolicy(make_policy(config, log), latency)


def measure(directory: RunDirectory) -> Measured:
    reader = JournalReader(directory)
    entries = reader.read(0, 10_000_000)
    reader.close()
    purposes: dict[str, str] = {}
    rollouts, evaluating = 0, 0.0
    first = last = began = 0.0
    staleness, final = 0.0, None
    for entry in entries:
        match entry.event:
            case TrialQueued() as event:
                purposes[event.trial] = event.purpose
                if event.purpose == "train":
                    first = first or entry.time
            case TrialFinished() as event:
                rollouts += purposes[event.trial] == "train"
            case StepFinished() as event:
                last = entry.time
                found = [v for k, v in event.metrics.items() if "stale" in k]
                staleness = max([staleness, *found])
            case EvalStarted():
                began = entry.time
            case EvalFinished() as event:
                # What was evaluated before the first rollout or after the last step is outside.
                if first:
                    evaluating += entry.time - began
                    after_last = entry.time - began
                final = event
            case _:
                pass
    if final is None or final.pass_rate is None or not last:
        raise SystemExit(f"{directory.path}: no step or no evaluation was finished; see log.txt")
    if began > last:
        evaluating -= after_last
    seconds = last - first - evaluating
    return Measured(60 * rollouts / seconds, final.pass_rate, final.scored, staleness)


async def run_once(seed: str, mode: str, settings: Sequence[str], latency: Latency) -> Measured:
    logs = tempfile.mkdtemp(prefix="tbtui-off-policy-")
    batches = parse_settings(settings)
    room = 2 * batches.batch_size * (batches.group_size + batches.oversample)
    given = {setting.partition("=")[0] for setting in settings}
    usual = (f"n_parallel_envs={room}", "eval_every=0", "eval_group_size=4")
    config = parse_settings(
        [
            *(setting for setting in usual if setting.partition("=")[0] not in given),
            *(*settings, MODES[mode], f"seed={seed}", f"logs_dir={logs}", f"run_name={mode}"),
        ]
    )
    prepared = await asyncio.to_thread(lambda: prepare_run(request_run(config)))
    end = await Run(prepared, slowed(latency)).run()
    if end.status != "finished":
        raise SystemExit(f"seed {seed}, {mode}: {end.status}: {end.reason}")
    return measure(prepared.directory)


def compare(rows: dict[str, list[Measured]]) -> None:
    print("mode    rollouts/min   held-out pass rate, mean over seeds")
    errors = {}
    for mode, found in rows.items():
        rate = statistics.mean(m.pass_rate for m in found)
        errors[mode] = math.sqrt(sum(m.error**2 for m in found)) / len(found)
        if len(found) > 1:  # seeds differ by more than their evaluations do
            spread = statistics.stdev(m.pass_rate for m in found) / math.sqrt(len(found))
            errors[mode] = max(errors[mode], spread)
        speed = statistics.mean(m.per_minute for m in found)
        print(f"{mode:6}  {speed:12.1f}   {rate:.3f} +- {errors[mode]:.3f}")
    if set(rows) == set(MODES):
        speeds = [statistics.mean(m.per_minute for m in rows[mode]) for mode in MODES]
        rates = [statistics.mean(m.pass_rate for m in rows[mode]) for mode in MODES]
        noise = 2 * math.hypot(*errors.values())
        print(
            f"ahead / sync: {speeds[1] / speeds[0]:.2f} times the rollouts (wanted {WANTED});"
            f" pass rate {rates[1] - rates[0]:+.3f}, noise +-{noise:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="SEED or KEY=VALUE")
    parser.add_argument("--median", type=float, default=2.0)
    parser.add_argument("--spread", type=float, default=0.8)
    parser.add_argument("--train", type=float, default=10.0)
    parser.add_argument("--modes", default="sync,ahead")
    arguments = parser.parse_intermixed_args()
    latency = Latency(arguments.median, arguments.spread, arguments.train)
    seeds = [word for word in arguments.words if "=" not in word] or ["0", "1", "2"]
    settings = [word for word in arguments.words if "=" in word]
    rows: dict[str, list[Measured]] = {mode: [] for mode in arguments.modes.split(",")}
    for seed in seeds:
        for mode, found in rows.items():
            began = time.monotonic()
            measured = asyncio.run(run_once(seed, mode, settings, latency))
            found.append(measured)
            print(
                f"seed {seed} {mode}: {measured.per_minute:.1f} rollouts/min, held-out"
                f" {measured.pass_rate:.3f} +- {measured.error:.3f} of {measured.scored},"
                f" staleness <= {measured.staleness:g}, {time.monotonic() - began:.0f} s in all",
                flush=True,
            )
    compare(rows)


if __name__ == "__main__":
    main()
