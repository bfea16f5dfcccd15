"""A paused run saves what it has trained once all is at rest, and can then be switched off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tbtui.config import to_toml
from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.findings import Rule
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    AlarmRaised,
    CheckpointSaved,
    EvalFinished,
    Noted,
    RunPhaseChanged,
    StepFinished,
    TrialPaused,
    TurnStarted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.messages import TrialSpec
from tests.waiting import until

from .conftest import Bench
from .fakes import FakePool, facts
from .test_engine import by_index
from .test_resume import SETTINGS, STARTED, LearningPolicy, Whole, by_what_it_says, require_order


def two_turns(pool: FakePool, spec: TrialSpec) -> object:
    return pool.end(spec, facts(1.0 if spec.trial.endswith("-1") else 0.0), turns=2)


def notes(bench: Bench) -> list[str]:
    return [event.text for event in bench.events(Noted)]


async def paused_in_step_2(
    bench: Bench, script: Callable[[FakePool, TrialSpec], object] = two_turns, **settings: object
) -> tuple[GrpoEngine, Any]:
    """Step 1 is trained; the trials of step 2 are in their first turn, and the run is paused."""
    bench.script = script

    def hold(event: StepFinished | EvalFinished) -> Sequence[AlarmRaised]:
        # As step 1 ends, so that no answer of step 2 is given before the pause.
        if isinstance(event, StepFinished) and event.step == 1:
            bench.policy.thinking = asyncio.Event()
        return ()

    bench.watch = hold
    engine = bench.engine(**{"max_steps": 3, "eval_every": 0, "save_every": 0, **settings})
    run = asyncio.create_task(engine.run())
    await until(lambda: [e for e in bench.events(TurnStarted) if e.trial.startswith("s0002")])
    engine.queue.submit(Command("pause", RUN))
    return engine, run


async def test_once_its_trials_rest_a_paused_run_saves_its_last_step(bench: Bench) -> None:
    engine, run = await paused_in_step_2(bench)
    await asyncio.sleep(0.05)
    assert not notes(bench)  # what is in flight is finished first
    assert bench.policy.thinking
    bench.policy.thinking.set()
    await until(lambda: notes(bench))
    assert notes(bench) == ["paused and saved at step 1"]
    (saved,) = [e for e in bench.events(CheckpointSaved) if e.step == 1]
    assert (saved.step, saved.weights_version) == (1, 1)
    assert len(bench.events(TrialPaused)) == 4
    assert bench.events(RunPhaseChanged)[-1].phase == "sampling"
    engine.queue.submit(Command("resume", RUN))
    # Paused again at the same step: these weights are saved already.
    await run
    assert notes(bench) == ["paused and saved at step 1"]
    assert [e.step for e in bench.events(StepFinished)] == [1, 2, 3]


async def test_what_is_saved_already_is_not_saved_again(bench: Bench) -> None:
    engine, run = await paused_in_step_2(bench, save_every=1)
    assert bench.policy.thinking
    bench.policy.thinking.set()
    await until(lambda: len(bench.events(TrialPaused)) == 4)
    await asyncio.sleep(0.05)
    assert not notes(bench)
    engine.queue.submit(Command("resume", RUN))
    await run
    assert sorted(e.step for e in bench.events(CheckpointSaved)) == [0, 1, 2, 3]


async def test_nothing_is_saved_before_anything_was_trained(bench: Bench) -> None:
    bench.script = two_turns
    bench.policy.thinking = asyncio.Event()
    engine = bench.engine(eval_every=0, save_every=0)
    bench.heldout = 0
    run = asyncio.create_task(engine.run())
    await until(lambda: bench.events(TurnStarted))
    engine.queue.submit(Command("pause", RUN))
    bench.policy.thinking.set()
    await until(lambda: bench.events(TrialPaused))
    await asyncio.sleep(0.05)
    assert not notes(bench)
    engine.queue.submit(Command("resume", RUN))
    await run


async def test_a_step_that_can_be_trained_is_trained_before_it_is_saved(bench: Bench) -> None:
    bench.script = by_index
    engine = bench.engine(max_steps=2, eval_every=0, save_every=0)
    bench.policy.before_training = asyncio.Event()
    run = asyncio.create_task(engine.run())
    await until(lambda: "accumulate" in bench.policy.calls)
    engine.queue.submit(Command("pause", RUN))
    await asyncio.sleep(0.05)
    assert not notes(bench)
    bench.policy.before_training.set()
    await until(lambda: notes(bench))
    assert notes(bench) == ["paused and saved at step 1"]
    engine.queue.submit(Command("resume", RUN))
    await run


async def test_a_step_whose_last_trials_end_in_the_pause_is_trained_before_it_is_saved(
    bench: Bench,
) -> None:
    engine, run = await paused_in_step_2(bench, by_index)
    assert bench.policy.thinking
    bench.policy.thinking.set()
    await until(lambda: notes(bench))
    assert notes(bench) == ["paused and saved at step 2"]
    engine.queue.submit(Command("resume", RUN))
    await run


async def test_a_step_that_is_half_trained_is_said_not_to_be_saved(bench: Bench) -> None:
    gate, slow = asyncio.Event(), ""

    def script(pool: FakePool, spec: TrialSpec) -> object:
        nonlocal slow
        group = spec.trial.rpartition("-")[0]
        if spec.trial.startswith("s0002"):
            slow = slow or group
        if group != slow:
            return by_index(pool, spec)
        return pool.later(gate, lambda pool, spec: pool.end(spec, facts(1.0)), spec)

    bench.script = script
    async with bench.running(
        max_steps=2, eval_every=0, save_every=0, stream=True, loss_normalizer="sum"
    ) as engine:
        await until(lambda: bench.policy.calls.count("accumulate") == 3)
        engine.queue.submit(Command("pause", RUN))
        gate.set()
        await until(lambda: notes(bench))
        assert notes(bench) == [
            "paused; step 2 is half trained: nothing can be saved until it is done"
        ]
        engine.queue.submit(Command("resume", RUN))


def pause_after_step_1(event: StepFinished | EvalFinished) -> Sequence[AlarmRaised]:
    if not (isinstance(event, StepFinished) and event.step == 1):
        return ()
    text = "nothing to learn"
    return (AlarmRaised(alarm=Rule.NO_SIGNAL, step=1, text=text, numbers={}, action="pause"),)


@pytest.mark.parametrize("off_policy", [0, 1])
async def test_an_alarms_pause_saves_too_and_the_evaluation_comes_later(
    tmp_path: Path, off_policy: int
) -> None:
    settings = {"eval_every": 1, "save_every": 0, "max_steps_off_policy": off_policy}
    alone = Whole(RunDirectory.create(tmp_path / "alone"), settings, by_what_it_says)
    expected = await alone.begin()

    whole = Whole(RunDirectory.create(tmp_path / "run"), settings, by_what_it_says)
    whole.directory.config.write_text(to_toml(whole.config()))
    with JournalWriter(whole.directory) as journal:
        journal.append(STARTED)
        bench = Bench(whole.directory, journal, LearningPolicy(), by_what_it_says)
        bench.watch = pause_after_step_1
        run = asyncio.create_task(bench.engine(**{**SETTINGS, **settings}).run())
        await until(lambda: "paused and saved at step 1" in notes(bench))
        assert 1 not in [event.step for event in bench.events(EvalFinished)]
        run.cancel()  # the machine is switched off
        with contextlib.suppress(asyncio.CancelledError):
            await run
    resumed = await whole.resume()
    require_order(whole)
    assert sorted(e.step for e in whole.events(EvalFinished)) == [0, 1, 2, 3]
    if not off_policy:
        assert whole.outcome() == alone.outcome()
        assert resumed.policy.weights == expected.policy.weights
