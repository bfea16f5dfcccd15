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
from tbtui.engines.grpo.failures import HaltError
from tbtui.engines.grpo.plan import plan_groups, task_order
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    CommandDone,
    CommandIssued,
    EvalFinished,
    GroupScored,
    Outcome,
    RunPaused,
    StepFinished,
    TrialFinished,
    TrialPaused,
    TrialQueued,
    TrialResumed,
    TrialRetried,
    TurnSampled,
    TurnStarted,
    WorkerLost,
)
from tbtui.journal.reader import JournalReader
from tbtui.rollout.messages import TrialSpec

from .conftest import TASKS, Bench, until
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


async def test_what_infrastructure_fails_is_retried_and_its_evidence_kept(bench: Bench) -> None:
    def fails_once(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial == "s0001-" + first_task + "-1":
            return pool.end(spec, facts(None, "error"))
        return by_index(pool, spec)

    first_task = next(task_order(TASKS[:6], 0)).name
    bench.script = fails_once
    await bench.engine().run()
    (retried,) = bench.events(TrialRetried)
    assert retried.successor == retried.trial + "-retry1"
    outcomes = {e.trial: (e.outcome, e.reward) for e in bench.events(TrialFinished)}
    assert outcomes[retried.trial] == (Outcome.AGENT_ERROR, None)
    assert outcomes[retried.successor][1] is not None


async def test_a_trial_that_stays_lost_leaves_its_group(bench: Bench) -> None:
    def one_lost(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("s0001") and "-2" in spec.trial.removeprefix("s0001-copy-2"):
            return pool.end(spec, facts(None, "sandbox_lost"))
        return by_index(pool, spec)

    bench.script = one_lost
    await bench.engine(group_size=3, max_retries=1).run()
    for group in bench.events(GroupScored):
        rewards = {t: s.reward for t, s in group.trials.items()}
        lost = [t for t, r in rewards.items() if r is None]
        assert len(lost) == 1
        assert lost[0].endswith("-2-retry1")
        assert group.trials[lost[0]].advantage is None
        assert group.baseline == 0.5


async def test_a_group_with_too_few_scored_members_is_not_trained_on(bench: Bench) -> None:
    def all_but_one_lost(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("s0001") and not spec.trial.endswith("-1"):
            return pool.end(spec, facts(None, "sandbox_lost"))
        return by_index(pool, spec)

    bench.script = all_but_one_lost
    await bench.engine(max_retries=0).run()
    assert {g.disposition for g in bench.events(GroupScored)} == {"short"}
    assert bench.policy.trained == []


async def test_a_run_that_can_run_nothing_halts_and_says_why(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(None, "sandbox_lost"))
    with pytest.raises(HaltError, match="none of 2 trials could be run; the last one: sandbox_l"):
        await bench.engine(max_retries=0).run()


async def test_a_lost_worker_costs_its_own_trials_only(bench: Bench) -> None:
    first = "s0001-" + next(task_order(TASKS[:6], 0)).name + "-1"

    def dies_under_the_first(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial == first:
            asyncio.get_running_loop().call_soon(pool.lose, spec.trial)
            return True
        return by_index(pool, spec)

    bench.script = dies_under_the_first
    await bench.engine().run()
    (lost,) = bench.events(WorkerLost)
    assert lost.trials == (first,)
    unscored = [e for e in bench.events(TrialFinished) if e.reward is None]
    assert [(e.trial, e.outcome) for e in unscored] == [(first, Outcome.SANDBOX_LOST)]
    assert "killed by SIGKILL" in unscored[0].reason


async def test_a_failing_policy_is_a_provider_error_not_a_zero(bench: Bench) -> None:
    bench.policy.fails = "the model process died"
    with pytest.raises(HaltError, match="provider_error"):
        await bench.engine(max_retries=0).run()
    assert {e.reward for e in bench.events(TrialFinished)} == {None}


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


async def test_a_paused_trial_waits_and_resumes(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(), turns=2)
    bench.policy.thinking = asyncio.Event()
    engine = bench.engine(max_steps=0, eval_group_size=1)
    running = asyncio.create_task(engine.run())
    await until(lambda: len(bench.policy.requests) == 2)
    trial = bench.pool.started[0].trial
    pause = Command("pause", trial, actor="ann")
    engine.submit(pause)
    assert not bench.events(CommandDone)
    bench.policy.thinking.set()
    await until(lambda: bool(bench.events(TrialPaused)))
    assert [d.command for d in bench.events(CommandDone)] == [pause.id]
    resume = Command("resume", trial, actor="ann")
    engine.submit(resume)
    await running
    assert [e.trial for e in bench.events(TrialResumed)] == [trial]
    assert [(d.command, d.ok) for d in bench.events(CommandDone)] == [
        (pause.id, True),
        (resume.id, True),
    ]
    assert [(c.actor, c.verb) for c in bench.events(CommandIssued)] == [
        ("ann", "pause"),
        ("ann", "resume"),
    ]


async def test_a_stopped_trial_has_no_part_in_its_group(bench: Bench) -> None:
    def holds_the_first(pool: FakePool, spec: TrialSpec) -> object:
        return True if spec.trial.endswith("-1") else by_index(pool, spec)

    bench.script = holds_the_first
    engine = bench.engine(max_steps=0)
    running = asyncio.create_task(engine.run())
    await until(lambda: len(bench.pool.started) == 2)
    for spec in bench.pool.started:
        engine.submit(Command("stop", spec.trial))
    await running
    ended = bench.events(TrialFinished)
    assert {(e.outcome, e.reward) for e in ended} == {(Outcome.CANCELLED, None)}
    assert not bench.events(TrialRetried)
    assert all(d.ok for d in bench.events(CommandDone))


async def test_a_command_on_a_trial_that_is_over_is_refused(bench: Bench) -> None:
    engine = bench.engine(max_steps=0)
    await engine.run()
    engine.submit(Command("pause", "e0000-move-2-1"))
    (done,) = bench.events(CommandDone)
    assert not done.ok
    assert done.result == "e0000-move-2-1 is not running: nothing to pause"


async def test_a_paused_run_starts_nothing_new(bench: Bench) -> None:
    engine = bench.engine(max_steps=0, n_parallel_envs=1)
    engine.submit(Command("pause", RUN))
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(0.05)
    assert bench.pool.started == []
    assert bench.events(RunPaused)
    engine.submit(Command("resume", RUN))
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
        temperature=1.0,
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
    groups = plan_groups(tasks, step=1, size=1, purpose="train", temperature=1.0, seed=0)
    assert [group.group for group in groups] == [
        "s0001-a--fix",
        "s0001-b--fix",
        "s0001-a--fix-2",
        "s0001-a--fix-2-2",
        "s0001-a--fix-3",
        "s0001-a--fix-4",
    ]
    assert len({group.trials[0].seed for group in groups}) == len(groups)
