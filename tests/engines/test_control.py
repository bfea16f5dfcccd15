"""Outcomes and what they lead to, commands on single trials, stragglers: through the engine."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.catalog.split import Split
from tbtui.config import ConfigError
from tbtui.engines.grpo.failures import FailureStreak, HaltError, retry_wait
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.plan import task_order
from tbtui.engines.grpo.recovery import recover
from tbtui.engines.grpo.rollouts import derive_seed
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    CommandDone,
    DeadlinePassed,
    EvalFinished,
    GroupRefilled,
    GroupScored,
    Noted,
    Outcome,
    StepFinished,
    TrialExcluded,
    TrialFinished,
    TrialPaused,
    TrialQueued,
    TrialResumed,
    TrialRetried,
    TurnSampled,
)
from tbtui.journal.reader import JournalReader
from tbtui.policies.base import Sample, SampleRequest
from tbtui.rollout.messages import TrialSpec
from tbtui.vocabulary import CommandVerb
from tests.waiting import until

from .conftest import TASKS, Bench
from .fakes import FakePool, facts

FIRST = "s0001-" + next(task_order(TASKS[:6], 0)).name


def by_index(pool: FakePool, spec: TrialSpec) -> object:
    return pool.end(spec, facts(1.0 if "-1" in spec.trial[len(FIRST) :] else 0.0))


def holding(*endings: str) -> Callable[[FakePool, TrialSpec], object]:
    """Training trials with these endings of their names never end by themselves."""

    def script(pool: FakePool, spec: TrialSpec) -> object:
        held = spec.trial.startswith("s") and spec.trial.endswith(endings)
        return True if held else by_index(pool, spec)

    return script


def rewards(bench: Bench) -> dict[str, float | None]:
    return {
        trial: score.reward
        for group in bench.events(GroupScored)
        for trial, score in group.trials.items()
    }


# The table


def test_the_table_is_complete_and_safe() -> None:
    policy = outcome_policy({})
    trained = {outcome for outcome in Outcome if policy[outcome] == "train"}
    assert trained == {
        Outcome.SOLVED,
        Outcome.FAILED,
        Outcome.AGENT_TIMEOUT,
        Outcome.CONTEXT_OVERFLOW,
        Outcome.OUTPUT_TRUNCATED,
        Outcome.PARSE_ERROR,
    }


@pytest.mark.parametrize("name", ["sandbox_lost", "setup_error", "verifier_error", "cancelled"])
def test_what_has_no_reward_cannot_be_trained_on(name: str) -> None:
    with pytest.raises(ConfigError, match="which is no reward; choose mask, retry or halt"):
        outcome_policy({name: "train"})


async def test_a_masked_outcome_leaves_its_groups_baseline(bench: Bench) -> None:
    def runs_out_of_time(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("s") and spec.trial.endswith("-3"):
            return pool.end(spec, facts(0.0, "budget"))
        return by_index(pool, spec)

    bench.script = runs_out_of_time
    engine = bench.engine(group_size=3, on_outcome={"agent_timeout": "mask"})
    await engine.run()
    for group in bench.events(GroupScored):
        assert group.baseline == 0.5
        assert [s.advantage for s in group.trials.values()] == [0.5, -0.5, None]
    late = [e for e in bench.events(TrialFinished) if e.outcome is Outcome.AGENT_TIMEOUT]
    assert {(e.verdict, e.reward) for e in late} == {(0.0, None)}


async def test_what_is_masked_still_counts_in_an_evaluation(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(0.0, "budget"))
    summary = await bench.engine(max_steps=0, on_outcome={"agent_timeout": "mask"}).run()
    assert summary == "held-out pass rate 0.00"


async def test_an_outcome_can_end_the_run(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(None, "error"))
    with pytest.raises(HaltError, match=r"e0000-move-\d-1: agent_error: .*on_outcome.agent_error"):
        await bench.engine(on_outcome={"agent_error": "halt"}).run()


# What a person typed in


@pytest.mark.parametrize("action", ["mask", "train"])
async def test_a_touched_trial_is_masked_unless_asked_for(bench: Bench, action: str) -> None:
    def script(pool: FakePool, spec: TrialSpec) -> object:
        touched = spec.trial.endswith("-1")
        return pool.end(
            spec, dataclasses.replace(facts(1.0 if touched else 0.0), human_touched=touched)
        )

    bench.script = script
    await bench.engine(group_size=3, on_outcome={"human_touched": action}).run()
    for group in bench.events(GroupScored):
        mine = group.trials[next(name for name in group.trials if name.endswith("-1"))]
        if action == "mask":
            assert (mine.reward, mine.advantage, group.baseline) == (None, None, 0.0)
        else:
            assert (mine.reward, group.baseline) == (1.0, pytest.approx(1 / 3))
    touched = [e for e in bench.events(TrialFinished) if e.outcome is Outcome.HUMAN_TOUCHED]
    assert {event.verdict for event in touched} == {1.0}


async def test_a_person_solves_nothing_of_an_evaluation(bench: Bench) -> None:
    touched = dataclasses.replace(facts(1.0), human_touched=True)
    bench.script = lambda pool, spec: pool.end(spec, touched)
    await bench.engine(max_steps=0).run()
    (evaluation,) = bench.events(EvalFinished)
    assert (evaluation.scored, evaluation.pass_rate) == (0, None)


# Retries and halting


async def test_failures_in_a_row_end_the_run_and_say_which_and_why(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(None, "sandbox_lost"))
    with pytest.raises(HaltError, match="5 failures of infrastructure in a row, the last in e0000"):
        await bench.engine(halt_after=5, max_retries=50).run()
    assert len(bench.events(TrialFinished)) >= 5


def test_one_incident_is_one_failure_and_success_ends_the_row() -> None:
    streak = FailureStreak(3)
    for trial in range(20):
        streak.failed(str(trial), Outcome.SANDBOX_LOST, "worker lost", "worker 1")
    streak.failed("a", Outcome.SETUP_ERROR, "no image", None)
    streak.worked()
    streak.failed("b", Outcome.SETUP_ERROR, "no image", None)
    streak.failed("c", Outcome.SETUP_ERROR, "no image", None)
    with pytest.raises(HaltError, match=r"3 failures .* setup_error: no image; mend it"):
        streak.failed("d", Outcome.SETUP_ERROR, "no image", None)


@given(st.floats(0.1, 20), st.integers(1, 30), st.integers(0, 1 << 40))
def test_waits_double_with_jitter_and_are_bounded(first: float, attempt: int, seed: int) -> None:
    full = min(60.0, first * 2 ** (attempt - 1))
    wait = retry_wait(first, attempt, seed)
    assert full / 2 <= wait <= full
    assert wait == retry_wait(first, attempt, seed)


async def test_a_retry_waits_without_holding_a_slot(bench: Bench) -> None:
    def fails_first(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial == "e0000-move-2-1":
            return pool.end(spec, facts(None, "error"))
        return by_index(pool, spec)

    bench.script = fails_first
    await bench.engine(max_steps=0, n_parallel_envs=1, retry_wait_sec=0.05).run()
    (retried,) = bench.events(TrialRetried)
    assert 0.025 <= retried.wait_sec <= 0.05
    ends = [(e.trial, e.outcome, e.reward) for e in bench.events(TrialFinished)]
    assert ends == [
        ("e0000-move-2-1", Outcome.AGENT_ERROR, None),
        ("e0000-move-3-1", Outcome.SOLVED, 1.0),
        ("e0000-move-2-1-retry1", Outcome.SOLVED, 1.0),
    ]


# Short groups


async def test_a_short_group_is_refilled_once(bench: Bench) -> None:
    def loses(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial in (FIRST + "-1", FIRST + "-2"):
            return pool.end(spec, facts(None, "sandbox_lost"))
        return by_index(pool, spec)

    bench.script = loses
    await bench.engine(batch_size=1, max_retries=0).run()
    (refilled,) = bench.events(GroupRefilled)
    assert refilled.trials == (FIRST + "-3", FIRST + "-4")
    assert rewards(bench) == {
        FIRST + "-1": None,
        FIRST + "-2": None,
        FIRST + "-3": 0.0,
        FIRST + "-4": 0.0,
    }
    seeds = [r.seed for r in bench.policy.requests]
    assert len(set(seeds)) >= 4


async def test_short_groups_can_be_dropped_instead(bench: Bench) -> None:
    def loses(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial == FIRST + "-1":
            return pool.end(spec, facts(None, "sandbox_lost"))
        return by_index(pool, spec)

    bench.script = loses
    await bench.engine(batch_size=1, max_retries=0, short_groups="drop").run()
    assert not bench.events(GroupRefilled)
    assert [g.disposition for g in bench.events(GroupScored)] == ["short"]
    assert bench.policy.trained == []


# Commands


async def test_retrying_a_running_trial_gives_it_a_fresh_attempt(bench: Bench) -> None:
    bench.script = holding("-1")
    async with bench.running(batch_size=1, eval_every=0) as engine:
        await bench.at_work(FIRST + "-1")
        engine.queue.submit(Command("retry", FIRST + "-1", actor="ann", reason="stuck"))
    (retried,) = bench.events(TrialRetried)
    assert (retried.trial, retried.successor) == (FIRST + "-1", FIRST + "-1-retry1")
    assert retried.reason == "asked by ann: stuck"
    first = await bench.ended(FIRST + "-1")
    assert first.outcome is Outcome.CANCELLED
    assert first.reason == "given up for a fresh attempt by ann: stuck"
    assert rewards(bench) == {FIRST + "-1-retry1": 1.0, FIRST + "-2": 0.0}
    assert [d.ok for d in bench.events(CommandDone)] == [True]


async def test_a_finished_trial_can_be_tried_again_while_its_step_samples(bench: Bench) -> None:
    bench.script = holding("-1")
    async with bench.running(batch_size=1, eval_every=0) as engine:
        await bench.ended(FIRST + "-2")
        engine.queue.submit(Command("retry", FIRST + "-2", actor="ann"))
        await until(lambda: any(e.trial.endswith("retry1") for e in bench.events(TrialFinished)))
        seeds = [r.seed for r in bench.policy.requests]
        assert len(set(seeds)) == len(seeds)
        engine.queue.submit(Command("cancel", FIRST + "-1"))
    assert rewards(bench) == {FIRST + "-1": None, FIRST + "-2-retry1": 0.0} | {
        trial: 0.0 for event in bench.events(GroupRefilled) for trial in event.trials
    }
    engine.queue.submit(Command("retry", FIRST + "-2-retry1"))
    last = bench.events(CommandDone)[-1]
    assert not last.ok
    assert "no part of the step that is being sampled" in last.result


async def test_the_model_call_of_a_trial_that_is_over_is_given_up(bench: Bench) -> None:
    bench.heldout = 0
    thinking = bench.policy.thinking = asyncio.Event()
    async with bench.running(batch_size=1) as engine:
        await until(lambda: len(bench.policy.requests) == 2)
        trials = [event.trial for event in bench.events(TrialQueued)]
        for trial in trials:
            engine.queue.submit(Command("cancel", trial, actor="ann"))
        await until(lambda: len(bench.events(TrialFinished)) == 2)
        thinking.set()
    sampled = {event.trial for event in bench.events(TurnSampled)}
    assert sampled == {event.trial for event in bench.events(TrialQueued)} - set(trials)


async def test_a_trial_that_is_tried_again_twice_draws_what_a_resumed_run_would(
    bench: Bench,
) -> None:
    bench.heldout, bench.script = 0, holding("-1")
    async with bench.running(batch_size=1) as engine:
        trial = FIRST + "-2"
        for attempt in (1, 2, 3):
            await until(lambda: trial in {e.trial for e in bench.events(TrialFinished)})  # noqa: B023
            with contextlib.closing(JournalReader(bench.directory)) as reader:
                start = recover(reader, Split(tuple(TASKS[:6]), ()), engine.config).start
                place = start.batches[1].places[FIRST, 2]
            drawn = bench.policy.requests[-1].seed
            assert drawn == derive_seed(place.seed, 0) if attempt > 1 else place.seed is None
            engine.queue.submit(Command("retry", trial, actor="ann"))
            trial = f"{FIRST}-2-retry{attempt}"
        engine.queue.submit(Command("cancel", FIRST + "-1"))


async def test_an_excluded_trial_is_not_trained_on(bench: Bench) -> None:
    bench.script = holding("-3")
    async with bench.running(batch_size=1, group_size=3) as engine:
        await bench.ended(FIRST + "-2")
        engine.queue.submit(Command("exclude", FIRST + "-2", reason="cheated"))
        engine.queue.submit(Command("exclude", FIRST + "-1"))
        engine.queue.submit(Command("include", FIRST + "-1"))
        engine.queue.submit(Command("exclude", "s0009-nothing-1"))
        bench.pool.end(await bench.at_work(FIRST + "-3"), facts(0.0))
    assert rewards(bench) == {FIRST + "-1": 1.0, FIRST + "-2": None, FIRST + "-3": 0.0}
    assert bench.events(TrialExcluded)[0].reason == "cheated"
    assert [d.ok for d in bench.events(CommandDone)] == [True, True, True, False]
    data, _ = bench.policy.trained[0]
    assert len(data) == 2


async def test_a_queued_trial_can_be_taken_out_of_the_queue(bench: Bench) -> None:
    bench.script = holding("-1")
    async with bench.running(batch_size=1, n_parallel_envs=1) as engine:
        await bench.at_work(FIRST + "-1")
        verbs: tuple[CommandVerb, ...] = ("pause", "cancel")
        for verb in verbs:
            engine.queue.submit(Command(verb, FIRST + "-2", actor="ann"))
        engine.queue.submit(Command("cancel", FIRST + "-1"))
    gone = await bench.ended(FIRST + "-2")
    assert gone.reason == "taken out of the queue by ann"
    assert FIRST + "-2" not in [s.trial for s in bench.pool.started]
    assert [d.ok for d in bench.events(CommandDone)] == [False, True, True]


async def test_the_run_goes_on_without_those_that_are_held_one_by_one(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(), turns=3)
    bench.policy.thinking = asyncio.Event()
    async with bench.running(max_steps=0) as engine:
        await until(lambda: len(bench.policy.requests) == 2)
        held, other = (spec.trial for spec in bench.pool.started)
        engine.queue.submit(Command("pause", held))
        engine.queue.submit(Command("pause", RUN))
        bench.policy.thinking.set()
        await until(lambda: len(bench.events(TrialPaused)) == 2)
        engine.queue.submit(Command("resume", RUN))
        await until(lambda: any(e.trial == other for e in bench.events(TrialFinished)))
        assert [e.trial for e in bench.events(TrialResumed)] == [other]
        engine.queue.submit(Command("resume", held))


async def test_a_pause_is_taken_back_before_the_trial_has_come_to_it(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(), turns=2)
    bench.policy.thinking = asyncio.Event()
    engine = bench.engine(max_steps=0)
    running = asyncio.create_task(engine.run())
    await until(lambda: len(bench.policy.requests) == 2)
    trial = bench.pool.started[0].trial
    engine.queue.submit(Command("pause", trial))
    engine.queue.submit(Command("resume", trial, actor="ann"))
    told = [(done.ok, done.result) for done in bench.events(CommandDone)]
    assert told == [(False, f"{trial}: taken back by ann"), (True, f"{trial} is running")]
    bench.policy.thinking.set()
    await running
    assert not bench.events(TrialPaused)


# Stragglers


async def test_late_trials_are_stopped_and_verified(bench: Bench) -> None:
    bench.script = holding("-2")
    async with bench.running(batch_size=1, step_deadline_sec=0.1):
        await until(lambda: bench.events(DeadlinePassed))
        assert (FIRST + "-2", "expire") in bench.pool.controls
    assert rewards(bench)[FIRST + "-2"] == 0.0


async def test_late_trials_can_be_left_out_and_are_not_replaced(bench: Bench) -> None:
    bench.script = holding("-2")
    await bench.engine(batch_size=1, step_deadline_sec=0.1, at_deadline="mask").run()
    late = await bench.ended(FIRST + "-2")
    assert late.reason == "left out: the step's deadline passed"
    assert not bench.events(GroupRefilled)
    assert [g.disposition for g in bench.events(GroupScored)] == ["short"]


async def test_a_step_can_wait_past_its_deadline_and_say_so(bench: Bench) -> None:
    bench.script = holding("-2")
    async with bench.running(batch_size=1, step_deadline_sec=0.1, at_deadline="wait"):
        await until(lambda: any("past its deadline" in n.text for n in bench.events(Noted)))
        bench.pool.end(await bench.at_work(FIRST + "-2"), facts(0.0))
    assert not bench.events(DeadlinePassed)


async def test_the_deadline_stands_still_while_the_run_is_paused(bench: Bench) -> None:
    def pausing(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial == FIRST + "-2":  # at once: before its time could be up
            engine.queue.submit(Command("pause", RUN))
        return holding("-2")(pool, spec)

    bench.script = pausing
    async with bench.running(batch_size=1, step_deadline_sec=0.2) as engine:
        await bench.at_work(FIRST + "-2")
        await asyncio.sleep(0.5)
        assert not bench.events(DeadlinePassed)
        engine.queue.submit(Command("resume", RUN))
    assert bench.events(DeadlinePassed)


async def test_extra_trials_fill_the_places_of_lost_ones_in_order(bench: Bench) -> None:
    def loses_the_second(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial == FIRST + "-2":
            return pool.end(spec, facts(None, "sandbox_lost"))
        return holding("-4")(pool, spec)

    bench.script = loses_the_second
    await bench.engine(batch_size=1, oversample=2, max_retries=0).run()
    assert rewards(bench) == {FIRST + "-1": 1.0, FIRST + "-3": 0.0}
    surplus = await bench.ended(FIRST + "-4")
    assert surplus.reason == "not needed: the group is full"


async def test_a_slow_trial_keeps_its_place_unless_short_ones_are_asked_for(bench: Bench) -> None:
    bench.script = holding("-1")
    async with bench.running(batch_size=1, oversample=2, eval_every=0):
        await until(lambda: len([e for e in bench.events(TrialFinished) if e.trial[0] == "s"]) == 3)
        assert not bench.events(StepFinished)
        bench.pool.end(await bench.at_work(FIRST + "-1"), facts(1.0))
    assert rewards(bench) == {FIRST + "-1": 1.0, FIRST + "-2": 0.0}


async def test_the_first_to_finish_fill_the_group_if_asked_for(bench: Bench) -> None:
    bench.script = holding("-1")
    engine = bench.engine(batch_size=1, oversample=2, oversample_keep="first_finished")
    await engine.run()
    assert rewards(bench) == {FIRST + "-2": 0.0, FIRST + "-3": 0.0}


async def test_trials_start_no_faster_than_asked_for(bench: Bench) -> None:
    bench.script = by_index
    running = asyncio.create_task(
        bench.engine(max_steps=0, eval_group_size=3, env_starts_per_sec=0.001).run()
    )
    await until(lambda: bench.pool.started)
    await asyncio.sleep(0.05)
    assert len(bench.pool.started) == 1
    running.cancel()


async def test_a_trial_that_tears_down_makes_room(bench: Bench) -> None:
    from tbtui.journal.events import TrialPhase
    from tbtui.rollout.messages import PhaseEntered

    def tears_down_for_long(pool: FakePool, spec: TrialSpec) -> object:
        pool.runner.on_message(1, PhaseEntered(spec.trial, TrialPhase.TEARDOWN))
        return True

    bench.script = tears_down_for_long
    engine = bench.engine(max_steps=0, eval_group_size=4, n_parallel_envs=2)
    running = asyncio.create_task(engine.run())
    # Two work while two tear down; a fifth would be one sandbox too many.
    await until(lambda: len(bench.pool.started) == 4)
    await asyncio.sleep(0.05)
    assert len(bench.pool.started) == 4
    running.cancel()


async def test_the_steps_wait_is_attributed(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(eval_every=0).run()
    (step,) = bench.events(StepFinished)
    assert step.metrics["time/wait/sampling"] == 0.5
    assert step.metrics["time/trials/sampling"] == 2.0
    assert len(bench.events(TrialQueued)) == 4 + 4


# What the policy may not do


async def test_a_silent_policy_is_a_provider_error_not_a_timeout(bench: Bench) -> None:
    bench.policy.thinking = asyncio.Event()
    with pytest.raises(HaltError, match=r"provider_error: .*no answer within 0.05 s"):
        await bench.engine(max_retries=0, sample_timeout_sec=0.05).run()
    assert {e.reward for e in bench.events(TrialFinished)} == {None}


async def test_samples_that_cannot_be_trained_on_are_provider_errors(bench: Bench) -> None:
    async def sample(request: SampleRequest) -> Sample:
        return Sample((1, 2), np.array([-0.5], np.float32), "stop", 0)

    bench.policy.sample = sample  # type: ignore[method-assign]
    with pytest.raises(HaltError, match="2 tokens came with 1 log-probabilities"):
        await bench.engine(max_retries=0).run()
    ended = bench.events(TrialFinished)
    assert {(e.outcome, e.reward) for e in ended} == {(Outcome.PROVIDER_ERROR, None)}
    assert not bench.events(TurnSampled)


async def test_what_a_server_does_not_tell_of_its_tokens_is_not_written(bench: Bench) -> None:
    told = bench.policy.sample

    async def sample(request: SampleRequest) -> Sample:
        known = await told(request)
        return dataclasses.replace(
            known, logprobs=np.zeros_like(known.logprobs), has_logprobs=False
        )

    bench.policy.sample = sample  # type: ignore[method-assign]
    await bench.engine(max_steps=1, eval_every=0).run()
    sampled = bench.events(TurnSampled)
    assert {(e.mean_logprob, e.min_logprob) for e in sampled} == {(None, None)}
