"""What the engine does with the sentinel's findings, with a policy whose sampler is out of step."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from tbtui.engines.grpo.failures import HaltError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    AlarmRaised,
    EvalStarted,
    Noted,
    RunPaused,
    StepFinished,
    StepStarted,
)
from tbtui.policies.base import Datum, PolicyError, PolicyLostError, Sample, SampleRequest
from tests.waiting import until

from .conftest import Bench
from .fakes import RotePolicy
from .test_engine import by_index


class TwoPrograms(RotePolicy):
    """Its log-probabilities are those of a version: the trainer's of what was published, the
    sampler's of what `arrives`."""

    def __init__(self, arrives: Sequence[float]) -> None:
        """`arrives[n]`: the version that the sampler has after publication n."""
        super().__init__()
        self.arrives = arrives
        self.info = dataclasses.replace(self.info, sampler_tolerance=0.01)
        self.probing: PolicyError | None = None

    async def sample(self, request: SampleRequest) -> Sample:
        if self.probing is not None and request.max_tokens == 16:
            raise self.probing
        drawn = await super().sample(request)
        logprobs = np.full(len(drawn.completion_ids), -1 - self.arrives[self.published], np.float32)
        return dataclasses.replace(drawn, logprobs=logprobs)

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        return tuple(np.full(int(d.mask.sum()), -1.0 - self.published, np.float32) for d in data)


def two_programs(bench: Bench, *arrives: float) -> TwoPrograms:
    bench.script, bench.policy = by_index, (policy := TwoPrograms(arrives))
    return policy


async def test_a_run_in_step_has_the_figures_in_its_metrics(bench: Bench) -> None:
    two_programs(bench, 0, 1, 2)
    await bench.engine(max_steps=2, eval_every=0).run()
    assert not bench.events(AlarmRaised)
    for step in bench.events(StepFinished):
        assert step.metrics["optim/sentinel_gap"] == 0
        assert step.metrics["optim/sentinel_sampler_move"] == 1
        assert "time/sentinel" in step.metrics


async def test_weights_that_a_step_has_not_changed_are_not_compared_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unchanged() -> int:
        return 0

    policy = two_programs(bench, 0)
    monkeypatch.setattr(policy, "publish", unchanged)
    await bench.engine(max_steps=2, eval_every=0).run()
    steps = bench.events(StepFinished)
    assert len(steps) == 2 and not any("time/sentinel" in step.metrics for step in steps)


@pytest.mark.parametrize(
    ("arrived", "words"),
    [(1, "the sampler still draws with version 1, not 2"), (1.5, "version 2 is not the trainer's")],
)
async def test_a_failed_publication_pauses_until_somebody_resumes(
    bench: Bench, arrived: float, words: str
) -> None:
    two_programs(bench, 0, 1, arrived, 3)
    async with bench.running(max_steps=3, eval_every=0) as engine:
        await until(lambda: bench.events(RunPaused))
        await asyncio.sleep(0.1)
        assert [event.step for event in bench.events(StepStarted)] == [1, 2]
        (alarm,) = bench.events(AlarmRaised)
        assert (alarm.alarm, alarm.step, alarm.action) == ("sampler_mismatch", 2, "pause")
        assert words in alarm.text
        assert bench.events(RunPaused)[0].reason == alarm.text
        engine.queue.submit(Command("resume", RUN, actor="ann"))
    assert [event.step for event in bench.events(StepFinished)] == [1, 2, 3]
    assert len(bench.events(AlarmRaised)) == 1


async def test_what_the_policy_starts_with_is_looked_at_before_anything_is_sampled(
    bench: Bench,
) -> None:
    two_programs(bench, 0.5, 1)
    async with bench.running() as engine:
        await until(lambda: bench.events(RunPaused))
        await asyncio.sleep(0.1)
        assert not bench.events(StepStarted) and not bench.events(EvalStarted)
        (alarm,) = bench.events(AlarmRaised)
        assert alarm.step == 0
        engine.queue.submit(Command("resume", RUN, actor="ann"))
    assert bench.events(StepFinished)


async def test_settings_say_what_else_it_leads_to(bench: Bench) -> None:
    two_programs(bench, 0, 0, 0)
    await bench.engine(max_steps=2, eval_every=0, on_alarm={"sampler_mismatch": "warn"}).run()
    assert [alarm.step for alarm in bench.events(AlarmRaised)] == [1, 2]
    assert not bench.events(RunPaused)


async def test_it_ends_the_run_after_its_step_is_written(bench: Bench) -> None:
    two_programs(bench, 0, 0)
    with pytest.raises(HaltError, match=r"on_alarm\.sampler_mismatch=halt"):
        await bench.engine(on_alarm={"sampler_mismatch": "halt"}, eval_every=0).run()
    assert [event.step for event in bench.events(StepFinished)] == [1]


async def test_a_probe_that_is_not_drawn_is_noted_and_no_reason_to_stop(bench: Bench) -> None:
    two_programs(bench, 0, 0).probing = PolicyError("busy")
    await bench.engine(eval_every=0).run()
    noted = [note.text for note in bench.events(Noted) if note.level == "warning"]
    assert noted == [f"version {v} was not compared with the sampler's: busy" for v in (0, 1)]
    assert not bench.events(AlarmRaised)


async def test_a_policy_that_is_lost_meanwhile_is_lost(bench: Bench) -> None:
    two_programs(bench, 0, 1).probing = PolicyLostError("killed")
    with pytest.raises(PolicyLostError):
        await bench.engine().run()
