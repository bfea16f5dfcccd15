"""In which order batches are sampled and trained: in turn, as they finish, or ahead."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from tbtui.engines.grpo.outcome_policy import AlarmWatch
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    AlarmRaised,
    CommandDone,
    GroupAdded,
    GroupScored,
    StepFinished,
    StepStarted,
    TrialFinished,
    TrialQueued,
    TurnSampled,
)
from tbtui.policies.base import Datum, GradientResult, LossSettings
from tbtui.rollout.messages import TrialSpec
from tbtui.sampling import SamplingSettings
from tests.waiting import until

from .conftest import TASKS, Bench
from .fakes import FakePool, facts
from .test_engine import by_index, by_index_but_first


def weight(bench: Bench) -> list[float]:
    """The weight of all trained tokens by optimiser step, divisor included."""
    return [
        sum(float(d.weights[d.mask].sum()) for d in data) / settings.divide_by
        for data, settings in bench.policy.trained
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_substeps_are_optimiser_steps(bench: Bench, stream: bool) -> None:
    bench.script = by_index
    await bench.engine(batch_size=5, num_substeps=2, stream=stream, eval_every=0).run()
    assert [len(data) for data, _ in bench.policy.trained] == [4, 6]
    assert weight(bench) == pytest.approx([1, 1])
    assert bench.policy.calls.count("apply") == 2
    assert bench.policy.published == 1
    (step,) = bench.events(StepFinished)
    assert step.metrics["optim/substeps"] == 2


async def test_groups_train_as_they_finish(bench: Bench) -> None:
    """The first group's gradient is computed while a trial of another still runs."""
    held: list[TrialSpec] = []
    bench.script = by_index_but_first(held)
    running = asyncio.create_task(bench.engine(batch_size=3, stream=True, eval_every=0).run())
    await until(lambda: bench.policy.calls.count("accumulate") == 2)
    assert "apply" not in bench.policy.calls
    bench.pool.end(held[0], facts(1.0))
    await running
    assert bench.policy.calls == ["accumulate"] * 3 + ["apply"]
    assert weight(bench) == pytest.approx([1])


async def test_streaming_takes_the_same_step(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(batch_size=3, eval_every=0).run()
    ((at_once, first),) = bench.policy.trained
    bench.policy.trained = []
    engine = bench.engine(batch_size=3, eval_every=0, stream=True)
    await engine.run()
    ((streamed, second),) = bench.policy.trained

    def tokens(data: list, divide_by: float) -> Counter[tuple[bytes, bytes]]:
        return Counter(
            (d.tokens.tobytes(), np.round(d.weights * d.advantages / divide_by, 6).tobytes())
            for d in data
        )

    assert tokens(at_once, first.divide_by) == tokens(streamed, second.divide_by)


async def test_what_is_being_trained_on_is_out_of_peoples_hands(bench: Bench) -> None:
    held: list[TrialSpec] = []
    bench.script = by_index_but_first(held)
    async with bench.running(batch_size=2, stream=True, eval_every=0) as engine:
        await until(lambda: "accumulate" in bench.policy.calls)
        (group,) = bench.events(GroupScored)
        engine.queue.submit(Command("exclude", next(iter(group.trials)), "tester"))
        (done,) = bench.events(CommandDone)
        assert not done.ok
        assert "being trained on already" in done.result
        bench.pool.end(held[0], facts(1.0))


@pytest.mark.parametrize("ahead", [1, 2])
async def test_no_token_is_older_than_allowed(bench: Bench, ahead: int) -> None:
    bench.script = by_index
    await bench.engine(max_steps=7, max_steps_off_policy=ahead, eval_every=3).run()
    versions: dict[int, set[int]] = {}
    for sampled in bench.events(TurnSampled):
        if sampled.trial.startswith("s"):
            versions.setdefault(int(sampled.trial[1:5]), set()).add(sampled.weights_version)
    assert sorted(versions) == [1, 2, 3, 4, 5, 6, 7]
    stale = {step: step - 1 - min(found) for step, found in versions.items()}
    assert max(stale.values()) == ahead
    steps = bench.events(StepFinished)
    assert [event.step for event in steps] == [1, 2, 3, 4, 5, 6, 7]
    assert [event.metrics["async/staleness_max"] for event in steps] == [
        stale[event.step] for event in steps
    ]


async def test_the_next_batch_is_sampled_while_one_trains(bench: Bench) -> None:
    bench.script = by_index
    bench.policy.before_training = asyncio.Event()
    async with bench.running(max_steps=3, max_steps_off_policy=1, eval_every=0):
        await until(lambda: "accumulate" in bench.policy.calls)
        await until(
            lambda: len([t for t in bench.events(TrialFinished) if "s0002" in t.trial]) == 4
        )
        assert not bench.events(StepFinished)
        assert not [t for t in bench.events(TrialQueued) if t.step == 3]
        bench.policy.before_training.set()


async def test_a_complete_batch_can_be_steered_until_its_turn_has_come(bench: Bench) -> None:
    """Step 2 has all of its trials while step 1 still samples."""
    held: list[TrialSpec] = []
    bench.script, bench.heldout = by_index_but_first(held), 0
    async with bench.running(max_steps=2, max_steps_off_policy=1, group_size=3) as engine:

        def ended() -> list[str]:
            return [e.trial for e in bench.events(TrialFinished) if e.trial.startswith("s0002")]

        await until(lambda: len(ended()) == 6)
        group = next(g for e in bench.events(StepStarted) if e.step == 2 for g in e.groups)
        engine.queue.submit(Command("exclude", f"{group}-1", "ann"))
        engine.queue.submit(Command("relabel", f"{group}-2", "ann", "it is right", {"reward": 0.5}))
        engine.queue.submit(Command("retry", f"{group}-3", "ann"))
        assert all(done.ok for done in bench.events(CommandDone))
        await until(lambda: f"{group}-3-retry1" in ended())
        bench.pool.end(held[0], facts(1.0))
    scored = next(e for e in bench.events(GroupScored) if e.group == group)
    assert {trial: score.reward for trial, score in scored.trials.items()} == {
        f"{group}-1": None,
        f"{group}-2": 0.5,
        f"{group}-3-retry1": 0.0,
    }


async def test_earlier_steps_get_places_first(bench: Bench) -> None:
    """A retry of the step that trains next comes before what is sampled ahead."""
    failed: set[str] = set()

    def fails_once(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("s0001") and not failed:
            failed.add(spec.trial)
            return pool.end(spec, facts(None, "error"))
        return by_index(pool, spec)

    bench.script = fails_once
    await bench.engine(
        max_steps=2, max_steps_off_policy=1, eval_every=0, n_parallel_envs=1, batch_size=2
    ).run()
    order = [spec.trial for spec in bench.pool.started if spec.trial.startswith("s")]
    retry = next(i for i, trial in enumerate(order) if trial.endswith("retry1"))
    assert sum(trial.startswith("s0002") for trial in order[:retry]) <= 1


async def test_in_turn_nothing_of_the_next_step_starts_early(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(max_steps=3).run()
    kinds = [
        (type(entry).__name__, entry.step)
        for entry in bench.events(StepStarted | StepFinished)  # type: ignore[arg-type]
    ]
    assert kinds == [(name, step) for step in (1, 2, 3) for name in ("StepStarted", "StepFinished")]


async def test_constant_groups_are_replaced_within_bounds(bench: Bench) -> None:
    seen: list[str] = []

    def constant_at_first(pool: FakePool, spec: TrialSpec) -> object:
        group = spec.trial.rpartition("-")[0]
        if spec.trial.startswith("s") and group not in seen:
            seen.append(group)
        if spec.trial.startswith("s") and seen.index(group) < 3:
            return pool.end(spec, facts(0.0))
        return by_index(pool, spec)

    bench.script = constant_at_first
    await bench.engine(batch_size=2, replace_constant_groups=3, eval_every=0).run()
    added = bench.events(GroupAdded)
    scored = bench.events(GroupScored)
    assert len(added) == 3
    assert Counter(g.disposition for g in scored) == {"constant": 3, "trained": 2}
    assert {a.group for a in added} <= {g.group for g in scored}
    assert len({g.task for g in scored}) == 5  # the order of tasks goes on


async def test_a_group_whose_first_trials_end_alike_begins_no_others(bench: Bench) -> None:
    """The first rewards are equal in one group, differ in another, and differ in the third once a
    trial has taken the place of one that infrastructure broke."""
    names: list[str] = []

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if not spec.trial.startswith("s"):
            return by_index(pool, spec)
        group, _, index = spec.trial.rpartition("-")
        if group not in names:
            names.append(group)
        if names.index(group) == 0:
            return pool.end(spec, facts(0.0))
        if names.index(group) == 2 and index == "2":
            return pool.end(spec, facts(None, "provider_error", "silence"), 1)
        return pool.end(spec, facts(1.0 if index == "3" else 0.0))

    bench.script = script
    settings = {"on_outcome": {"provider_error": "mask"}, "min_group": 2, "eval_group_size": 4}
    await bench.engine(batch_size=3, group_size=6, screen_trials=3, **settings).run()
    queued = [e.trial for e in bench.events(TrialQueued) if e.purpose == "train"]
    begun = Counter(trial.rpartition("-")[0] for trial in queued)
    assert [begun[name] for name in names] == [3, 6, 6]
    scored = {event.group: event.disposition for event in bench.events(GroupScored)}
    assert [scored[name] for name in names] == ["constant", "trained", "trained"]
    # The rest begins as soon as two rewards differ; where one was lost, after one more.
    third = [t.rpartition("-")[2] for t in queued if t.startswith(f"{names[2]}-")]
    assert third == ["1", "2", "3", "4", "5", "6"]
    evaluated = Counter(e.group for e in bench.events(TrialQueued) if e.purpose == "eval")
    assert set(evaluated.values()) == {4}


async def test_a_screened_group_is_replaced_like_any_constant_one(bench: Bench) -> None:
    def constant_at_first(pool: FakePool, spec: TrialSpec) -> object:
        if bench.events(GroupAdded):
            return by_index(pool, spec)
        # Equal but for rounding.
        return pool.end(spec, facts(0.3 if spec.trial.endswith("-1") else 0.1 + 0.2))

    bench.script, bench.heldout = constant_at_first, 0
    settings = {"group_size": 4, "screen_trials": 2, "replace_constant_groups": 1}
    await bench.engine(batch_size=1, **settings).run()
    (added,) = bench.events(GroupAdded)
    queued = Counter(e.group for e in bench.events(TrialQueued))
    assert queued == {added.replaces: 2, added.group: 4}
    (step,) = bench.events(StepFinished)
    assert step.metrics["env/all/useful_groups_per_100_rollouts"] == pytest.approx(100 / 6)


async def test_a_group_that_penalties_tell_apart_is_not_constant(bench: Bench) -> None:
    def all_solved(pool: FakePool, spec: TrialSpec) -> object:
        turns = 1 if spec.trial.endswith("-1") else 3
        return pool.end(spec, dataclasses.replace(facts(1.0), turns=turns), turns)

    bench.script, bench.heldout = all_solved, 0
    await bench.engine(turn_penalty=0.1, replace_constant_groups=2).run()
    assert not bench.events(GroupAdded)
    assert {event.disposition for event in bench.events(GroupScored)} == {"trained"}


async def test_an_epoch_is_every_task_once(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(max_steps=100, n_epochs=1, batch_size=4, eval_every=0).run()
    groups = [g for event in bench.events(StepStarted) for g in event.groups.values()]
    assert len(bench.events(StepStarted)) == 2
    assert set(groups) == {task.name for task in TASKS[:6]}


async def test_a_metric_that_is_no_number_cannot_spoil_the_journal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accumulate(data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        logprobs = tuple(datum.logprobs[datum.mask] for datum in data)
        return GradientResult(0.0, math.nan, logprobs, 0.01, {"odd": math.inf})

    bench.script = by_index
    monkeypatch.setattr(bench.policy, "accumulate", accumulate)
    await bench.engine(eval_every=0).run()
    (step,) = bench.events(StepFinished)
    assert "optim/entropy" not in step.metrics
    assert "optim/odd" not in step.metrics
    assert step.metrics["optim/loss"] == 0


async def test_a_trainer_that_computes_no_numbers_raises_the_alarm(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accumulate(data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        nothing = tuple(np.full(int(datum.mask.sum()), np.nan, np.float32) for datum in data)
        return GradientResult(0.0, 0.5, nothing, 0.01)

    bench.script, bench.heldout = by_index, 0
    bench.watch = AlarmWatch({}, SamplingSettings()).see
    monkeypatch.setattr(bench.policy, "accumulate", accumulate)
    await bench.engine(max_steps=2).run()
    (alarm,) = bench.events(AlarmRaised)
    assert (alarm.alarm, alarm.step) == ("sampler_mismatch", 1)
    assert "differ by nan nats" in alarm.text
    assert set(alarm.numbers) == {"limit", "staleness"}
    assert "optim/kl_sample_train_v2" not in bench.events(StepFinished)[0].metrics
