"""Runs that draw from another distribution than the model's own, which is what they train."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from tbtui.algorithm.losses import clipped_tokens
from tbtui.journal.events import AlarmRaised, RunStarted, StepFinished, TrialQueued
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import (
    MODEL_ITSELF,
    Datum,
    GradientResult,
    LossSettings,
    Sample,
    SampleRequest,
    SamplingParams,
)
from tbtui.whatif.recorded import read_step
from tests.cli.process import tbtui
from tests.events import events_of

from .conftest import Bench
from .fakes import RotePolicy
from .test_engine import by_index

SETTINGS = {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "stop": ("END",)}
TRAINED = SamplingParams(0.7, 0.9, 50, 0.01, ("END",))
DRAWN, MODEL, TRAINER = -0.25, -1.0, -1.125
"""Nats a token."""


class OtherDistribution(RotePolicy):
    """Has a trainer that differs from its sampler by an eighth of a nat."""

    def __init__(self, model: float) -> None:
        """`model`: what the sampler says of the model's own log-probabilities."""
        super().__init__()
        self.model = model
        self.info = dataclasses.replace(self.info, sampler_tolerance=1.0)

    async def sample(self, request: SampleRequest) -> Sample:
        drawn = await super().sample(request)
        values = np.ones(len(drawn.completion_ids), np.float32)
        if request.sampling.is_model:
            return dataclasses.replace(drawn, logprobs=values * np.float32(MODEL))
        return dataclasses.replace(
            drawn,
            logprobs=values * np.float32(DRAWN),
            model_logprobs=values * np.float32(self.model),
        )

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        done = await super().accumulate(data, loss)
        return dataclasses.replace(done, logprobs=await self.score(data, "trained"))

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        self.calls.append(f"score {weights}")
        return tuple(np.full(int(d.mask.sum()), TRAINER, np.float32) for d in data)


async def trained(bench: Bench, model: float) -> tuple[OtherDistribution, list[Datum]]:
    bench.script, bench.policy = by_index, (policy := OtherDistribution(model))
    await bench.engine(max_steps=1, loss_fn="ppo", **SETTINGS).run()
    return policy, [datum for data, _ in policy.trained for datum in data]


async def test_ratios_are_between_the_models_own_log_probabilities(bench: Bench) -> None:
    _, data = await trained(bench, MODEL)
    assert data
    for datum in data:
        assert (datum.logprobs[datum.mask] == MODEL).all()
        new = np.full(int(datum.mask.sum()), TRAINER, np.float32)
        advantages = datum.advantages[datum.mask]
        # By an eighth of a nat: no ratio is beyond its bounds for what was asked for.
        old = datum.logprobs[datum.mask]
        assert not clipped_tokens(new, old, advantages, LossSettings("ppo")).any()
    (step,) = bench.events(StepFinished)
    assert step.metrics["optim/max_logprob_gap"] == pytest.approx(0.125)
    assert step.metrics["optim/neg_logprob"] == pytest.approx(1)
    assert not bench.events(AlarmRaised)


async def test_what_the_sampler_does_not_give_is_the_trainers(bench: Bench) -> None:
    policy, data = await trained(bench, np.nan)
    assert data
    assert all((datum.logprobs[datum.mask] == TRAINER).all() for datum in data)
    (step,) = bench.events(StepFinished)
    assert "optim/kl_sample_train_v2" not in step.metrics
    assert step.metrics["optim/neg_logprob"] == pytest.approx(-TRAINER)
    assert not bench.events(AlarmRaised)
    assert policy.calls.index("score trained") < policy.calls.index("accumulate")


async def test_trials_are_drawn_as_the_settings_say_and_the_sentinel_from_the_model(
    bench: Bench,
) -> None:
    policy, _ = await trained(bench, MODEL)
    trials = {event.trial: event.purpose for event in bench.events(TrialQueued)}
    assert set(trials.values()) == {"train", "eval"}
    asked = {request.sampling for request in policy.requests}
    assert asked == {TRAINED, dataclasses.replace(TRAINED, temperature=1.0), MODEL_ITSELF}
    probes = [request for request in policy.requests if request.sampling == MODEL_ITSELF]
    assert {request.max_tokens for request in probes} == {16}


@pytest.mark.slow
def test_a_real_run_is_quiet_and_records_both(tmp_path: Path) -> None:
    shape = ("temperature=0.7", "top_p=0.9", "loss_fn=ppo")
    size = ("max_steps=2", "batch_size=6", "group_size=4", "eval_every=0", "eval_tasks=copy-01")
    where = (f"logs_dir={tmp_path}", "run_name=a", "environment_type=sandbox")
    done = tbtui("run", "--no-ui", *shape, *size, *where)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    again = tbtui("run", "--no-ui", "--resume", str(tmp_path / "a"), "max_steps=3")
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]

    run = RunDirectory(tmp_path / "a")
    assert not events_of(run, AlarmRaised)
    (begun,) = events_of(run, RunStarted)
    assert (begun.settings["temperature"], begun.settings["top_p"]) == (0.7, 0.9)
    steps = events_of(run, StepFinished)
    assert [step.step for step in steps] == [1, 2, 3]
    gaps = [step.metrics.get("optim/max_logprob_gap") for step in steps]
    assert any(gap is not None for gap in gaps)
    # What was drawn with is up to a nat away.
    assert all(gap is None or gap < 1e-3 for gap in gaps)
    assert all(step.metrics.get("optim/clip_fraction", 0.0) == 0 for step in steps)

    queued = {event.trial: event for event in events_of(run, TrialQueued)}
    apart = 0.0
    with closing(JournalReader(run)) as reader:
        for trial, event in queued.items():
            records = reader.samples(trial)
            if event.purpose == "eval":
                assert all(record.model_logprobs is not None for record in records)
                continue
            for record in records:
                assert record.model_logprobs is not None
                apart = max(apart, float(np.abs(record.logprobs - record.model_logprobs).max()))
            told = reader.trained_logprobs(trial, event.step)
            if told is not None and len(told) == sum(len(r.logprobs) for r in records):
                own = np.concatenate([record.of_model for record in records])
                np.testing.assert_allclose(told, own, atol=1e-3)
    assert apart > 0.1
    assert all(
        not np.isnan(call.logprobs).any()
        for group in read_step(run, 1).groups
        for trial in group.trials
        for call in trial.calls
    )
