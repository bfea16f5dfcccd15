"""The loop: what is run, scored, trained on and journalled, and what never is."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.catalog.load import TaskInfo
from tbtui.engines.grpo.plan import plan_groups, task_order
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    EvalFinished,
    GroupScored,
    RunPaused,
    StepFinished,
    TrialFinished,
    TrialQueued,
    TurnSampled,
    TurnStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.rollout.messages import TrialSpec
from tbtui.sampling import MODEL_ITSELF

from .conftest import TASKS, Bench
from .fakes import FakePool, facts


def by_index(pool: FakePool, spec: TrialSpec) -> object:
    """The first sibling solves its task, the others fail."""
    return pool.end(spec, facts(1.0 if spec.trial.endswith("-1") else 0.0))


def by_index_but_first(held: list[TrialSpec]) -> Callable[[FakePool, TrialSpec], object]:
    """The same, but the first trial of the first step does not end: it is in `held` then."""

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("s0001") and not held:
            held.append(spec)
            return True
        return by_index(pool, spec)

    return script


async def test_a_step_trains_on_what_its_groups_teach(bench: Bench) -> None:
    bench.script = by_index
    summary = await bench.engine(max_steps=2).run()
    assert summary == "2 steps, held-out pass rate 1.00 → 1.00"
    assert [step.step for step in bench.events(StepFinished)] == [1, 2]
    assert len(bench.policy.trained) == 2
    data, _ = bench.policy.trained[0]
    assert len(data) == 4
    signs = sorted(float(np.sign(d.advantages[d.mask][0])) for d in data)
    assert signs == [-1, -1, 1, 1]
    assert sum(float(d.weights[d.mask].sum()) for d in data) == pytest.approx(1)


async def test_every_sample_carries_the_version_of_its_weights(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(max_steps=2, eval_every=0).run()
    versions = {e.trial: e.weights_version for e in bench.events(TurnSampled)}
    assert {v for t, v in versions.items() if t.startswith("s0001")} == {0}
    assert {v for t, v in versions.items() if t.startswith("s0002")} == {1}
    assert {v for t, v in versions.items() if t.startswith("e0002")} == {2}


async def test_constant_groups_are_counted_and_teach_nothing(bench: Bench) -> None:
    await bench.engine().run()
    assert [g.disposition for g in bench.events(GroupScored)] == ["constant", "constant"]
    assert bench.policy.trained == []
    (step,) = bench.events(StepFinished)
    assert step.metrics["env/all/by_group/frac_constant"] == 1


async def test_held_out_tasks_are_never_trained_on(bench: Bench) -> None:
    await bench.engine(max_steps=6).run()
    queued = bench.events(TrialQueued)
    assert {t.task for t in queued if t.purpose == "train"} <= {t.name for t in TASKS[:6]}
    assert {t.task for t in queued if t.purpose == "eval"} == {t.name for t in TASKS[6:]}


async def test_no_more_trials_at_once_than_asked_for(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(batch_size=4, group_size=4, n_parallel_envs=3).run()
    assert bench.pool.most_at_once == 3


async def test_evaluations_draw_with_the_same_seeds(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(max_steps=1).run()
    started = [e.trial for e in bench.events(TurnStarted)]
    seeds: dict[str, list[int]] = {"e0000": [], "e0001": []}
    for trial, request in zip(started, bench.policy.requests, strict=True):
        if trial[:5] in seeds:
            seeds[trial[:5]].append(request.seed)
    assert sorted(seeds["e0000"]) == sorted(seeds["e0001"])
    assert bench.events(EvalFinished)[0].by_kind == {"move": 1.0}


async def test_the_tokens_of_a_turn_are_recorded_exactly(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(), turns=3)
    bench.policy.say = lambda request: f"seed {request.seed % 10}"
    await bench.engine(max_steps=0).run()
    reader = JournalReader(bench.directory)
    trial = bench.events(TrialQueued)[0].trial
    records = reader.samples(trial)
    assert [r.turn for r in records] == [1, 2, 3]
    for earlier, later in itertools.pairwise(records):
        known = earlier.prompt_ids + earlier.completion_ids
        assert later.prompt_ids[: len(known)] == known
    assert "".join(records[0].pieces).startswith("seed ")


async def test_a_paused_run_starts_nothing_new(bench: Bench) -> None:
    engine = bench.engine(max_steps=0, n_parallel_envs=1)
    engine.queue.submit(Command("pause", RUN))
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(0.05)
    assert bench.pool.started == []
    assert bench.events(RunPaused)
    engine.queue.submit(Command("resume", RUN))
    await running
    assert len(bench.events(TrialFinished)) == 2


@given(st.integers(0, 5), st.integers(1, 4))
def test_each_epoch_has_every_task_once(seed: int, epochs: int) -> None:
    order = [t.name for t in itertools.islice(task_order(TASKS, seed), len(TASKS) * epochs)]
    for epoch in itertools.batched(order, len(TASKS)):
        assert sorted(epoch) == sorted(t.name for t in TASKS)
    again = [t.name for t in itertools.islice(task_order(TASKS[::-1], seed), len(order))]
    assert again == order


@given(st.lists(st.sampled_from(TASKS), min_size=1, max_size=6), st.integers(1, 4))
def test_trial_ids_and_seeds_are_unique(tasks: list[TaskInfo], size: int) -> None:
    groups = plan_groups(
        tasks,
        step=3,
        size=size,
        purpose="train",
        sampling=MODEL_ITSELF,
        seed=0,
    )
    plans = [plan for group in groups for plan in group.trials]
    names = [plan.trial_id(attempt) for plan in plans for attempt in (1, 2)]
    assert len(set(names)) == len(names)
    assert not any("/" in name for name in names)
    assert len({plan.seed for plan in plans}) == len(plans)


def test_tasks_of_one_name_have_groups_and_directories_of_their_own() -> None:
    names = ["a/fix", "b/fix", "a--fix", "a--fix-2", "a/fix", "a--fix"]
    tasks = [dataclasses.replace(TASKS[0], name=name) for name in names]
    groups = plan_groups(tasks, step=1, size=1, purpose="train", sampling=MODEL_ITSELF, seed=0)
    assert [group.group for group in groups] == [
        "s0001-a--fix",
        "s0001-b--fix",
        "s0001-a--fix-2",
        "s0001-a--fix-2-2",
        "s0001-a--fix-3",
        "s0001-a--fix-4",
    ]
    assert len({group.trials[0].seed for group in groups}) == len(groups)
