"""Which tasks batches have: by the seed's order, by weights, and by what people say of tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tbtui.engines.grpo.plan import task_order
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    CommandDone,
    StepFinished,
    StepStarted,
    TasksDrawn,
    TasksJudged,
    TasksWeighted,
)
from tbtui.rollout.messages import TrialSpec
from tests.waiting import until

from .conftest import TASKS, Bench
from .fakes import FakePool, facts
from .test_engine import by_index

ADA = "ada"


def only_moves_teach(pool: FakePool, spec: TrialSpec) -> object:
    """`copy` is never solved; half of each group of `move` is."""
    solved = "move" in spec.trial and spec.trial.endswith(("1", "3"))
    return pool.end(spec, facts(float(solved)), 1)


def tasks_of(bench: Bench) -> list[list[str]]:
    return [list(event.groups.values()) for event in bench.events(StepStarted)]


async def test_uniform_takes_tasks_in_the_order_of_before(bench: Bench) -> None:
    bench.script, bench.heldout = by_index, 0
    await bench.engine(max_steps=7, seed=3).run()
    order = task_order(TASKS[:6], 3)
    assert tasks_of(bench) == [[next(order).name for _ in range(2)] for _ in range(7)]
    assert not bench.events(TasksDrawn)
    judged = bench.events(TasksJudged)
    assert [event.step for event in judged] == list(range(1, 8))


@pytest.mark.parametrize("sampling", ["learnability", "thompson"])
async def test_what_teaches_is_drawn_more_often(bench: Bench, sampling: str) -> None:
    bench.script, bench.heldout = only_moves_teach, 2
    await bench.engine(
        max_steps=30, group_size=4, batch_size=1, eval_every=0, task_sampling=sampling
    ).run()
    drawn = [task for batch in tasks_of(bench) for task in batch]
    assert set(drawn) <= {task.name for task in TASKS[:6]}  # held-out tasks stay held out
    late = drawn[12:]
    assert sum(task.startswith("move") for task in late) > 0.6 * len(late)
    events = bench.events(TasksDrawn)
    assert [list(event.groups) for event in events] == [
        list(event.groups) for event in bench.events(StepStarted)
    ]
    metrics = [event.metrics for event in bench.events(StepFinished)]
    assert all("curriculum/useful_groups_expected" in each for each in metrics)
    assert {each["env/all/useful_groups_per_100_rollouts"] for each in metrics} == {0.0, 25.0}
    # By the end the expectation is near what comes.
    last = metrics[-8:]
    expected = sum(each["curriculum/useful_groups_expected"] for each in last)
    assert abs(expected - sum(each["env/all/useful_groups"] for each in last)) < 4


async def weighed(bench: Bench, *asked: tuple[str, dict[str, Any]]) -> list[CommandDone]:
    """Run three steps after these commands have been carried out."""
    bench.script, bench.heldout = by_index, 0
    engine = bench.engine(max_steps=3)
    for target, arguments in asked:
        engine.queue.submit(Command("set", target, ADA, "because", arguments))
    await engine.run()
    return bench.events(CommandDone)


async def test_people_weigh_tasks(bench: Bench) -> None:
    done = await weighed(
        bench, ("copy", {"muted": True}), ("copy-1", {"pinned": True}), ("move-0", {"weight": 3})
    )
    assert [event.ok for event in done] == [True] * 3
    assert done[0].result == "copy: muted, from the next batch on"
    batches = tasks_of(bench)
    assert all("copy-1" in batch for batch in batches)
    assert {task for batch in batches for task in batch} <= {"copy-1", "move-0", "move-1"}
    first, second, third = bench.events(TasksWeighted)
    assert (first.tasks, first.factor, first.actor, first.reason) == (
        *(("copy-0", "copy-1", "copy-2", "copy-3"), 0),
        *(ADA, "because"),
    )
    assert (second.tasks, second.factor, second.pinned) == (("copy-1",), 0, True)
    assert (third.tasks, third.factor, third.pinned) == (("move-0",), 3, False)


@pytest.mark.parametrize(
    ("target", "arguments", "why"),
    [
        ("nothing", {"weight": 1}, "no task or kind of that name is trained on"),
        ("move-3", {"weight": 1}, "no task or kind of that name is trained on"),  # held out
        ("copy-1", {"weight": -1}, "should be from 0 to 1000"),
        ("copy-1", {"weight": "x"}, "say what its weight should be"),
        ("copy-1", {}, "say what its weight should be"),
    ],
)
async def test_what_cannot_be_is_refused_in_a_line(
    bench: Bench, target: str, arguments: dict[str, Any], why: str
) -> None:
    (done,) = await weighed(bench, (target, arguments))
    assert not done.ok and why in done.result
    assert not bench.events(TasksDrawn)


async def test_some_task_is_always_left(bench: Bench) -> None:
    done = await weighed(bench, ("copy", {"muted": True}), ("move", {"muted": True}))
    assert [event.ok for event in done] == [True, False]
    assert "some task has to be left" in done[1].result


async def test_a_weight_that_is_taken_back_gives_the_order_back(bench: Bench) -> None:
    gate = asyncio.Event()

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if not spec.trial.startswith("s0002"):
            return by_index(pool, spec)
        return pool.later(gate, lambda pool, spec: pool.end(spec, facts(0.0)), spec)

    bench.script, bench.heldout = script, 0
    engine = bench.engine(max_steps=4, seed=5)
    engine.queue.submit(Command("set", "copy", ADA, "", {"muted": True}))
    run = asyncio.create_task(engine.run())
    await until(lambda: len(bench.events(StepStarted)) == 2)
    engine.queue.submit(Command("set", "copy", ADA, "", {"muted": False}))
    gate.set()
    await run
    order = task_order(TASKS[:6], 5)
    assert tasks_of(bench)[2:] == [[next(order).name for _ in range(2)] for _ in range(2)]
    assert {group[:5] for event in bench.events(TasksDrawn) for group in event.groups} == {
        "s0001",
        "s0002",
    }
