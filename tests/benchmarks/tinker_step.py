"""What overlapping requests gains on a real Tinker server: steps of `tbtui run policy=tinker`
against a plain loop that waits for each call in turn.

`python -m tests.benchmarks.tinker_step [--home DIR] [--steps 4] [--modes ours,plain,...]`

The server is SkyRL 0.4.0 on this machine's CPU (tests/tinker_server/skyrl.py installs and starts
it), the model the embedded one, a batch 4 starter tasks of 8 trials each. Modes:

- `ours`: a real run, with real Harbor trials, 16 at once. Its sampling requests and training data
  are recorded for `plain` and `plain16`.
- `trials`: the same trials as a plain loop has them: one at a time, each call awaited before the
  next. (Its training is ours, so a little faster than such a loop's.)
- `plain`: no trials at all. The recorded prompts are sampled one after the other, each awaited;
  then one forward_backward with the recorded data, an optimiser step, saving the weights for
  sampling and a sampling client for them, each awaited. The server is set up for one sampling
  request at a time, so that it computes no more than is asked for. What is left is what the
  server computes.
- `plain16`: the same, but the turns of 16 trials are sampled at once, as they were in `ours`.

Everything is done twice, and the first time and the first step are not counted: the server compiles
in them.

Prints the seconds of each step, and of them, how long the server had no request of the training
client and no sampling request to work on, by the times that the server recorded of each request.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import tinker

from tbtui.config import RunConfig, parse_settings
from tbtui.engines.prepare import prepare_run
from tbtui.engines.request import request_run
from tbtui.engines.run import Run
from tbtui.journal.events import StepFinished, StepStarted
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import (
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    Policy,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.policies.registry import make_policy
from tbtui.policies.tinker.data import policy_data
from tbtui.policies.tinker.policy import TinkerPolicy
from tests.tinker_server.skyrl import ANY_KEY, SkyRL, default_home, end_politely, serving

AIM = 0.67
AT_ONCE = 16
CONTEXT = 1024
END_ID = 0
SAMPLING = frozenset({"sample"})
TRAINING = frozenset({"forward", "forward_backward", "optim_step", "save_weights_for_sampler"})

Span = tuple[float, float]
"""Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Turn:
    request: SampleRequest
    sample: Sample

    def precedes(self, request: SampleRequest) -> bool:
        history = self.request.prompt_ids + self.sample.completion_ids
        return request.prompt_ids[: len(history)] == history


@dataclass(slots=True)
class Recorded:
    """What one step asked of the policy."""

    trials: list[list[Turn]] = field(default_factory=list)
    data: list[Datum] = field(default_factory=list)
    optim: OptimSettings | None = None

    def add(self, turn: Turn) -> None:
        for trial in self.trials:
            if trial[-1].precedes(turn.request):
                trial.append(turn)
                return
        self.trials.append([turn])


class Recording:
    """Wraps a policy's methods so that what they are asked for is kept, step by step."""

    def __init__(self) -> None:
        self.steps = [Recorded()]

    def make(self, config: RunConfig, log: IO[bytes]) -> Policy:
        policy = make_policy(config, log)
        assert isinstance(policy, TinkerPolicy)
        return _recorded(policy, self)


def _recorded(policy: TinkerPolicy, recording: Recording) -> Policy:
    sample, accumulate, apply = policy.sample, policy.accumulate, policy.apply

    async def sampled(request: SampleRequest) -> Sample:
        drawn = await sample(request)
        recording.steps[-1].add(Turn(request, drawn))
        return drawn

    async def accumulated(data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        recording.steps[-1].data.extend(data)
        return await accumulate(data, loss)

    async def applied(settings: OptimSettings) -> StepResult:
        recording.steps[-1].optim = settings
        recording.steps.append(Recorded())
        return await apply(settings)

    policy.sample = sampled  # type: ignore[method-assign]
    policy.accumulate = accumulated  # type: ignore[method-assign]
    policy.apply = applied  # type: ignore[method-assign]
    return policy


async def run_ours(skyrl: SkyRL, steps: int, at_once: int, recording: Recording) -> list[Span]:
    """A real run; the time of each of its steps."""
    config = parse_settings(
        [
            "policy=tinker",
            f"model_name={skyrl.model}",
            f"tinker_base_url={skyrl.url}",
            "renderer=embedded",
            f"context_limit={CONTEXT}",
            f"max_steps={steps + 1}",
            "eval_every=0",
            # The server compiles at first, for longer than the tasks leave an agent.
            "trial_timeout_sec=600",
            f"n_parallel_envs={at_once}",
            f"logs_dir={tempfile.mkdtemp(prefix='tbtui-tinker-step-')}",
            "run_name=ours",
        ]
    )
    prepared = await asyncio.to_thread(lambda: prepare_run(request_run(config)))
    end = await Run(prepared, recording.make).run()
    if end.status != "finished":
        raise SystemExit(f"{prepared.directory.path}: {end.status}: {end.reason}")
    return _steps_of(prepared.directory)[1:]


def _steps_of(directory: RunDirectory) -> list[Span]:
    reader = JournalReader(directory)
    entries = reader.read(0, 10_000_000)
    reader.close()
    began = {e.event.step: e.time for e in entries if isinstance(e.event, StepStarted)}
    return [
        (began[entry.event.step], entry.time)
        for entry in entries
        if isinstance(entry.event, StepFinished)
    ]


def run_plain(skyrl: SkyRL, recorded: Sequence[Recorded], at_once: int) -> list[Span]:
    """The recorded steps again, over the SDK alone; the time of each but the first."""
    spans: list[Span] = []
    with (
        tinker.ServiceClient(base_url=skyrl.url, api_key=ANY_KEY) as service,
        ThreadPoolExecutor(at_once) as pool,
    ):
        training = service.create_lora_training_client(base_model=skyrl.model, seed=0).result()
        sampler = _published(service, training, 0)
        for number, step in enumerate(recorded):
            began = time.time()
            for _ in pool.map(_replaying(sampler), step.trials):
                pass
            _train(training, step)
            sampler = _published(service, training, number + 1)
            spans.append((began, time.time()))
    return spans[1:]


def _replaying(sampler: tinker.SamplingClient) -> Callable[[list[Turn]], None]:
    def replay(trial: list[Turn]) -> None:
        for turn in trial:
            request = turn.request
            parameters = tinker.SamplingParams(
                max_tokens=min(request.max_tokens, CONTEXT - len(request.prompt_ids)),
                temperature=request.temperature,
                seed=request.seed,
                stop=[END_ID],
            )
            prompt = tinker.ModelInput.from_ints(list(request.prompt_ids))
            sampler.sample(prompt, 1, parameters).result()

    return replay


def _train(training: tinker.TrainingClient, step: Recorded) -> None:
    assert step.optim is not None
    scales = [float(len(datum.tokens) - 1) for datum in step.data]
    if step.data:
        data = policy_data(step.data, "importance_sampling", scales)
        training.forward_backward(data, "importance_sampling").result()
    training.optim_step(tinker.AdamParams(learning_rate=step.optim.learning_rate)).result()


def _published(
    service: tinker.ServiceClient, training: tinker.TrainingClient, number: int
) -> tinker.SamplingClient:
    path = training.save_weights_for_sampler(f"step{number}").result().path
    return service.create_sampling_client(model_path=path).result()


def busy(database: Path, kinds: frozenset[str]) -> list[Span]:
    """When the server had requests of these kinds, in order and without overlaps."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT request_type, created_at, completed_at FROM futures")
        spans = sorted(
            (_epoch(created), _epoch(completed))
            for kind, created, completed in rows
            if kind.lower() in kinds and completed
        )
    merged: list[Span] = []
    for began, ended in spans:
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def idle(span: Span, working: Sequence[Span]) -> float:
    """Seconds of `span` in none of `working`."""
    began, ended = span
    overlaps = (min(ended, stop) - max(began, start) for start, stop in working)
    return ended - began - sum(seconds for seconds in overlaps if seconds > 0)


@dataclass(frozen=True, slots=True)
class Measured:
    mode: str
    seconds: list[float]
    trainer_idle: float
    """Mean over the steps, as the next."""
    sampler_idle: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measured(mode: str, spans: Sequence[Span], skyrl: SkyRL) -> Measured:
    training, sampling = busy(skyrl.database, TRAINING), busy(skyrl.database, SAMPLING)
    found = Measured(
        mode,
        [ended - began for began, ended in spans],
        statistics.mean(idle(span, training) for span in spans),
        statistics.mean(idle(span, sampling) for span in spans),
    )
    each = " ".join(f"{seconds:.1f}" for seconds in found.seconds)
    print(f"{mode}: {each} s", flush=True)
    return found


def measure(home: Path, steps: int, modes: Sequence[str], rows: int) -> Iterator[Measured]:
    recording = Recording()
    with serving(home, at_once=rows) as skyrl:
        os.environ.update(skyrl.environment())
        asyncio.run(run_ours(skyrl, steps, AT_ONCE, Recording()))
        spans = asyncio.run(run_ours(skyrl, steps, AT_ONCE, recording))
        yield measured("ours", spans, skyrl)
        recorded = recording.steps[: steps + 1]
        turns = sum(len(trial) for step in recorded[1:] for trial in step.trials) / steps
        print(f"{turns:.0f} turns a step", flush=True)
        if "plain16" in modes:
            yield measured("plain16", run_plain(skyrl, recorded, AT_ONCE), skyrl)
    if not {"plain", "trials"} & set(modes):
        return
    with serving(home, at_once=1) as skyrl:
        os.environ.update(skyrl.environment())
        if "plain" in modes:
            run_plain(skyrl, recorded, 1)
            yield measured("plain", run_plain(skyrl, recorded, 1), skyrl)
        if "trials" in modes:
            spans = asyncio.run(run_ours(skyrl, steps, 1, Recording()))
            yield measured("trials", spans, skyrl)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--modes", default="ours,plain,plain16,trials")
    parser.add_argument("--rows", type=int, default=4, help="sequences in a batch of the server")
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    end_politely()
    rows = list(measure(arguments.home.resolve(), arguments.steps, modes, arguments.rows))
    ours = rows[0]
    print("mode      median s/step   trainer idle s   sampler idle s   ours / it")
    for row in rows:
        print(
            f"{row.mode:8}  {row.median:13.1f}   {row.trainer_idle:14.1f}"
            f"   {row.sampler_idle:14.1f}   {ours.median / row.median:9.2f}"
        )
    print(f"wanted: ours / trials <= {AIM}")


if __name__ == "__main__":
    main()
