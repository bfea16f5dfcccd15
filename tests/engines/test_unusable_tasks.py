"""Tasks that no trial can be scored on: tried once, passed over from then on, and said so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tbtui.catalog.split import Split
from tbtui.config import RunConfig
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.curriculum import Curriculum
from tbtui.engines.grpo.failures import HaltError, UnusableTasks
from tbtui.engines.grpo.plan import BatchPlanner
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.journal.events import (
    EvalFinished,
    GroupAdded,
    GroupRefilled,
    Outcome,
    StepFinished,
    StepStarted,
    TasksSetAside,
    TrialFinished,
    TrialQueued,
    TrialRetried,
)
from tbtui.rollout.messages import TrialFacts, TrialSpec, VerdictCheck

from .conftest import TASKS, Bench
from .fakes import FakePool, facts

UNBUILDABLE = dataclasses.replace(
    facts(None, "not_run"),
    exception_type="UnbuildableError",
    exception_message="COPY --from can't be done in the sandbox",
    unusable="image",
)
CANT_VERIFY = dataclasses.replace(
    facts(0.0), verdict_check=VerdictCheck(False, "uvx: command not found", "untouched", "verifier")
)


def failing(*tasks: str, how: TrialFacts = UNBUILDABLE) -> Callable[[FakePool, TrialSpec], object]:
    """Trials of these tasks end like this; of the others, the first sibling solves it."""

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if spec.task_dir.name in tasks:
            return pool.end(spec, how, turns=0)
        return pool.end(spec, facts(1.0 if spec.trial.endswith("-1") else 0.0))

    return script


@pytest.mark.parametrize(("how", "kind"), [(UNBUILDABLE, "image"), (CANT_VERIFY, "verifier")])
async def test_a_task_is_tried_once(bench: Bench, how: TrialFacts, kind: str) -> None:
    bench.script = failing("copy-1", "move-3", how=how)
    await bench.engine(
        max_steps=4, batch_size=3, group_size=4, n_parallel_envs=2, max_unusable=1.0
    ).run()
    aside = {task: why for e in bench.events(TasksSetAside) for task, why in e.unusable.items()}
    assert aside.keys() == {"copy-1", "move-3"}
    assert {(why.kind, why.by) for why in aside.values()} == {(kind, "trial")}
    queued = bench.events(TrialQueued)
    for task in aside:
        started = {spec.trial for spec in bench.pool.started if spec.task_dir.name == task}
        assert len(started) <= 2  # those that ran at once
        assert all(trial.attempt == 1 for trial in queued if trial.task == task)
    assert not bench.events(TrialRetried)
    assert not bench.events(GroupRefilled)
    # A further task takes its place, so that the batch is whole, and it is never taken again.
    [added] = bench.events(GroupAdded)
    assert "copy-1" in added.replaces
    after = [e for e in bench.events(StepStarted) if e.step > added.step]
    assert all("copy-1" not in e.groups.values() for e in after)
    assert len(bench.events(StepFinished)) == 4
    for event in bench.events(EvalFinished):
        assert event.unscored_tasks == 1
        assert set(event.by_task) == {"move-2"}
    ended = [e for e in bench.events(TrialFinished) if e.reason.startswith("its task can't be")]
    assert all(e.outcome is Outcome.CANCELLED for e in ended)


BUILD_FAILED = dataclasses.replace(
    facts(None, "not_run"), exception_type="SandboxBuildFailedError", failed_phase="environment"
)
VERIFIER_FAILED = dataclasses.replace(
    facts(None), exception_type="SandboxError", failed_phase="verifier"
)


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("how", [BUILD_FAILED, VERIFIER_FAILED])
async def test_an_environment_or_a_verifier_that_fails_the_same_way_three_times(
    bench: Bench, how: TrialFacts, network: bool
) -> None:
    """Unless it fails for want of a network, which may come back."""
    said = "curl: (6) Could not resolve host: x" if network else "gcc: no such option"
    failed = dataclasses.replace(how, exception_message=f"exit code 1 of RUN x\n{said}")
    bench.heldout = 0
    bench.script = failing("copy-1", how=failed)
    await bench.engine(max_steps=3, batch_size=2, group_size=2, n_parallel_envs=1).run()
    tries = [spec for spec in bench.pool.started if spec.task_dir.name == "copy-1"]
    assert bool(bench.events(TasksSetAside)) is not network
    assert (len(tries) == 3) is not network


async def test_a_run_without_a_usable_task_says_why(bench: Bench) -> None:
    bench.heldout = 0
    bench.script = failing(*(task.name for task in TASKS))
    with pytest.raises(HaltError, match=r"no task is left to train on.*COPY --from"):
        await bench.engine(max_steps=2, batch_size=2, group_size=2, max_unusable=1.0).run()


async def test_too_many_end_the_run(bench: Bench) -> None:
    bench.heldout = 0
    bench.script = failing(*(task.name for task in TASKS))
    with pytest.raises(HaltError, match=r"of the 6 tasks tried can't be used.*max_unusable"):
        await bench.engine(max_steps=2, batch_size=6, group_size=2).run()


async def test_what_was_set_aside_stays_so_after_an_interruption(bench: Bench) -> None:
    """The order goes on where it was: tasks that were passed over are counted."""
    bench.heldout = 0
    bench.script = failing("copy-1")
    await bench.engine(max_steps=5, batch_size=2, group_size=2, max_unusable=1.0).run()
    whole = [sorted(e.groups.values()) for e in bench.events(StepStarted)]
    added = [e.task for e in bench.events(GroupAdded)]
    taken: dict[str, int] = {}
    for names in whole[:3]:
        for name in names:
            taken[name] = taken.get(name, 0) + 1
    for name in added:
        taken[name] = taken.get(name, 0) + 1
    unusable = next(iter(bench.events(TasksSetAside))).unusable
    start = StartingPoint(step=3, tasks_taken=taken, unusable=unusable)
    config = RunConfig(max_steps=5, batch_size=2, group_size=2)
    split = Split(train=tuple(TASKS[:6]), heldout=())
    run = EngineContext(config, split, bench.policy, bench.journal, start)
    known = UnusableTasks(bench.journal, known=unusable)
    planner = BatchPlanner(run, known, Curriculum(run))
    again = [[group.task.name for group in planner.batch(step, None)] for step in (4, 5)]
    assert again == [list(e.groups.values()) for e in bench.events(StepStarted)[3:5]]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ({"agent_uninstalled": "pi can't be installed: no npm; give it a network"}, "^pi can't be"),
        ({"failed_phase": "agent_setup"}, "can't be set up in any trial so far: the agent never"),
    ],
)
async def test_an_agent_that_cannot_be_set_up_is_no_tasks_fault(
    bench: Bench, end: dict[str, Any], said: str
) -> None:
    how = dataclasses.replace(facts(None, "not_run"), exception_message="no luck", **end)
    bench.script = lambda pool, spec: pool.end(spec, how, turns=0)
    with pytest.raises(HaltError, match=said):
        await bench.engine(n_parallel_envs=1, halt_after=0).run()
    assert not bench.events(TasksSetAside)
