"""Impossible tasks among those that train: which groups, after an interruption too; and a pass."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from tbtui.catalog.split import Split
from tbtui.catalog.tasks import discover
from tbtui.config import RunConfig
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.curriculum import Curriculum
from tbtui.engines.grpo.failures import HaltError, UnusableTasks
from tbtui.engines.grpo.plan import BatchPlanner
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.engines.honeypots import make_honeypots, places
from tbtui.journal.events import AlarmRaised, TrialFinished
from tbtui.resources import tasks_dir
from tbtui.rollout.messages import TrialSpec

from .conftest import TASKS, Bench, task
from .fakes import FakePool, facts

BAIT = dataclasses.replace(task("copy-0-impossible", "impossible"), impossible=True)


def passing_the_impossible(pool: FakePool, spec: TrialSpec) -> object:
    bait = "impossible" in spec.trial and spec.trial.endswith("-2")
    return pool.end(spec, facts(1.0 if bait else 0.0))


def test_the_share_of_groups_is_what_was_asked_for() -> None:
    drawn = Counter(len(places([BAIT], 0.1, step=step, groups=8, seed=3)) for step in range(1, 501))
    baits = sum(number * steps for number, steps in drawn.items())
    assert 0.07 < baits / 4000 < 0.13
    assert places([], 0.5, step=1, groups=8, seed=3) == {}
    assert all(len(places([BAIT], 0.5, step=s, groups=1, seed=3)) == 0 for s in range(50))


async def test_a_pass_raises_an_alarm_and_is_no_reward(bench: Bench) -> None:
    bench.honeypots = (BAIT,)
    bench.script = passing_the_impossible
    await bench.engine(max_steps=4, batch_size=3, honeypots=0.5, eval_every=0).run()
    alarms = bench.events(AlarmRaised)
    passes = [end for end in bench.events(TrialFinished) if end.verdict == 1.0]
    assert passes
    assert {end.trial for end in passes} == {alarm.trial for alarm in alarms}
    assert all(end.reward is None for end in passes)
    assert all(alarm.alarm == "honeypot" and alarm.action == "warn" for alarm in alarms)
    assert "copy-0-impossible/2 has passed" in alarms[0].text
    assert bench.policy.trained == []  # all that is left is equal


async def test_a_pass_can_end_the_run(bench: Bench) -> None:
    bench.honeypots = (BAIT,)
    bench.script = passing_the_impossible
    engine = bench.engine(
        max_steps=4, batch_size=3, honeypots=0.5, eval_every=0, on_alarm={"honeypot": "halt"}
    )
    with pytest.raises(HaltError, match=r"on_alarm\.honeypot=halt"):
        await engine.run()


def test_a_resumed_run_has_the_same_groups(bench: Bench) -> None:
    """Honeypots are not of the order of tasks, and take none of it."""
    split = Split(train=tuple(TASKS[:6]), heldout=(), honeypots=(BAIT,))
    config = RunConfig(batch_size=3, honeypots=0.4, max_steps=9)

    def planner(start: StartingPoint) -> BatchPlanner:
        run = EngineContext(config, split, bench.policy, bench.journal, start)
        return BatchPlanner(run, UnusableTasks(bench.journal), Curriculum(run))

    whole = planner(StartingPoint())
    names = [[group.task.name for group in whole.batch(step, None)] for step in range(1, 7)]
    taken = Counter(name for batch in names[:3] for name in batch)
    assert taken[BAIT.name]
    resumed = planner(dataclasses.replace(StartingPoint(), tasks_taken=taken))
    assert [
        [group.task.name for group in resumed.batch(step, None)] for step in range(4, 7)
    ] == names[3:]


def test_honeypots_are_made_once(tmp_path: Path) -> None:
    tasks = discover(tasks_dir() / "starter").tasks[:20]
    made = make_honeypots(tasks, tmp_path, seed=1)
    assert len(made) == 16
    assert all(each.impossible and (each.path / "tests" / "test.sh").is_file() for each in made)
    mark = made[0].path / "tests" / "mark"
    mark.touch()
    assert make_honeypots(tasks, tmp_path, seed=1) == made
    assert mark.exists()
