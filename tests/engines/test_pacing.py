"""A run that goes slowly at first, and trials that are asked to pause while they are queued."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from tbtui.config import RunConfig
from tbtui.engines.pacing import SHOWN_SEC, Pacer, paced_for_app
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    CommandDone,
    StepFinished,
    TrialFinished,
    TrialPaused,
    TrialQueued,
    TrialResumed,
    TurnSampled,
)
from tests.waiting import until

from .conftest import Bench

_FOREVER = 100_000.0


async def test_a_run_is_not_paced_unless_asked(bench: Bench) -> None:
    await bench.engine().run()
    assert bench.pool.delays == []


async def test_answers_stand_until_full_speed_is_asked_for(bench: Bench) -> None:
    engine = bench.engine(pace_sec=_FOREVER, max_steps=2, eval_every=0)
    running = asyncio.create_task(engine.run())
    # The two held-out trials: what the model wrote is there to read, and goes no further.
    await until(lambda: len(bench.pool.delays) == 2)
    assert len(bench.events(TurnSampled)) == 2
    assert {each.delayed for each in bench.pool.delays} == {True}
    assert bench.events(TrialFinished) == []
    engine.queue.submit(Command("set", RUN, "ada", arguments={"pace_sec": 0}))
    async with asyncio.timeout(20):
        await running
    assert len(bench.events(StepFinished)) == 2
    held = {each.request for each in bench.pool.delays}
    assert {each.request for each in bench.pool.delays if not each.delayed} == held


async def test_only_what_comes_before_step_2_is_paced(bench: Bench) -> None:
    await bench.engine(pace_sec=0.001, max_steps=3, eval_every=1).run()
    paced = len([each for each in bench.pool.delays if each.delayed])
    first = [
        e for e in bench.events(TrialQueued) if e.step == 0 or (e.step, e.purpose) == (1, "train")
    ]
    assert paced == len(first) < len(bench.events(TrialQueued))


async def test_a_held_answer_that_is_given_up_starts_the_clocks_again() -> None:
    stopped: list[bool] = []
    pacer = Pacer(_FOREVER)
    held = asyncio.create_task(pacer.hold(1, "train", lambda delayed, _: stopped.append(delayed)))
    await until(lambda: bool(stopped))
    held.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await held
    assert stopped == [True, False]


@pytest.mark.parametrize(
    ("settings", "pace"),
    [
        ({}, SHOWN_SEC),
        ({"pace_sec": 0.0}, 0.0),
        ({"pace_sec": 5.0}, 5.0),
        ({"policy": "vllm"}, None),
        ({"max_steps": 0}, None),
        ({"engine": "prime-rl"}, None),
    ],
)
def test_only_the_embedded_model_is_paced_unless_asked(
    settings: dict[str, Any], pace: float | None
) -> None:
    assert paced_for_app(RunConfig(**settings)).pace_sec == pace


async def test_a_queued_trial_pauses_at_its_first_turn(bench: Bench) -> None:
    engine = bench.engine(n_parallel_envs=1, pace_sec=_FOREVER, eval_every=0)
    running = asyncio.create_task(engine.run())
    await until(lambda: bench.events(TurnSampled))
    queued = next(
        e.trial for e in bench.events(TrialQueued) if e.trial != bench.pool.started[0].trial
    )
    pause = Command("pause", queued, "ada")
    engine.queue.submit(pause)
    assert not [each for each in bench.events(CommandDone) if each.command == pause.id]
    engine.queue.submit(Command("set", RUN, "ada", arguments={"pace_sec": 0}))
    await until(lambda: bench.events(TrialPaused))
    assert [each.trial for each in bench.events(TrialPaused)] == [queued]
    (done,) = [each for each in bench.events(CommandDone) if each.command == pause.id]
    assert done.ok
    assert queued not in {each.trial for each in bench.events(TurnSampled)}
    engine.queue.submit(Command("resume", queued, "ada"))
    async with asyncio.timeout(20):
        await running
    assert [each.trial for each in bench.events(TrialResumed)] == [queued]
