"""A probe's rounds: who is tried when, what counts, and when they end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tbtui.journal.events import ProbeMeasured, ProbeStarted, TrialQueued
from tbtui.rollout.messages import TrialSpec

from .conftest import Bench
from .fakes import FakePool, facts

ARMS = ("terminus-2@1", "mini-swe-agent@0.5")


def settings(**changes: Any) -> dict[str, Any]:
    return {"probe": ARMS, "eval_group_size": 3, "group_size": 8, "max_steps": 0, **changes}


async def test_arms_take_turns_and_are_measured_each_round(bench: Bench) -> None:
    """The second agent solves every other trial, the first one none."""

    def script(pool: FakePool, spec: TrialSpec) -> object:
        number = int(spec.trial.rpartition("-")[2])
        solved = spec.agent == "mini-swe-agent" and number % 2 == 0
        return pool.end(spec, facts(float(solved)))

    bench.script = script
    await bench.engine(**settings()).run()
    (begun,) = bench.events(ProbeStarted)
    assert [f"{arm.agent}@{arm.temperature:g}" for arm in begun.arms] == list(ARMS)
    assert len(begun.tasks) == 6
    rounds = bench.events(ProbeMeasured)
    assert [(each.rounds, [arm.trials for arm in each.arms]) for each in rounds] == [
        (1, [6, 6]),
        (2, [12, 12]),
        (3, [18, 18]),
    ]
    # Each arm has its agent and its temperature, and has been tried as often as the other.
    assert {(spec.agent, spec.trial[:2]) for spec in bench.pool.started} == {
        ("terminus-2", "p1"),
        ("mini-swe-agent", "p2"),
    }
    temperatures = {request.sampling.temperature for request in bench.policy.requests}
    assert temperatures == {1.0, 0.5}
    first, second = rounds[-1].arms
    assert (first.pass_at[1].value, first.signal and first.signal.value) == (0.0, 0.0)
    assert second.pass_at[1].value == pytest.approx(2 / 3)
    assert second.signal and second.signal.value == 1.0
    assert (first.readable, second.readable) == (0, None), "nothing says what its program read"
    queued = bench.events(TrialQueued)
    assert {each.purpose for each in queued} == {"probe"}
    assert len({each.label for each in queued}) == len(queued) == 36
    assert not bench.policy.trained


async def test_what_infrastructure_breaks_is_in_no_rate(bench: Bench) -> None:
    def script(pool: FakePool, spec: TrialSpec) -> object:
        broken = spec.trial.startswith("p1") and spec.trial.endswith("-1")
        return pool.end(spec, facts(None, "sandbox_lost", "gone") if broken else facts(1.0))

    bench.script = script
    await bench.engine(**settings(halt_after=100, max_retries=0, eval_group_size=2)).run()
    first, second = bench.events(ProbeMeasured)[-1].arms
    assert (first.trials, first.scored, first.broken) == (12, 6, 6)
    assert (second.trials, second.scored, second.broken) == (12, 12, 0)
    assert first.pass_at[1].value == 1.0
    assert first.reason.startswith("sandbox_lost: ")
    assert first.signal is None, "no task has two scored trials"


async def test_an_arm_whose_first_prompt_does_not_fit_is_not_tried_on(bench: Bench) -> None:
    def script(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("p2"):
            return pool.end(spec, facts(1.0))
        full = replace(facts(0.0, "context_overflow"), turns=0, overflow="764 tokens of 512")
        return pool.end(spec, full, turns=0)

    bench.script = script
    await bench.engine(**settings()).run()
    *_, last = bench.events(ProbeMeasured)
    assert [(arm.trials, arm.scored, arm.overflowed) for arm in last.arms] == [
        (6, 0, 6),
        (18, 18, 0),
    ]
    assert "the first prompt doesn't fit: 764 tokens of 512" in last.arms[0].reason


@pytest.mark.parametrize(
    ("budget", "rounds", "why"),
    [
        ({"rollouts": 30.0}, 2, "24 rollouts spent of 30 rollouts"),
        ({"tokens": 1.0}, 1, "tokens spent of 1 tokens, and a further round would take"),
        ({"hours": 5.0}, 3, "all trials are over"),
    ],
)
async def test_a_round_begins_only_where_it_is_paid_for(
    bench: Bench, budget: dict[str, float], rounds: int, why: str
) -> None:
    await bench.engine(**settings(budget=budget)).run()
    *_, last = bench.events(ProbeMeasured)
    assert last.rounds == rounds
    assert why in last.stopped


async def test_what_runs_into_the_end_of_the_time_is_not_scored(bench: Bench) -> None:
    """Else trials that take long would count as failed."""
    bench.policy.thinking = asyncio.Event()
    summary = await bench.engine(**settings(budget={"hours": 1e-6})).run()
    (only,) = bench.events(ProbeMeasured)
    assert [(arm.trials, arm.scored, arm.pass_at) for arm in only.arms] == [(0, 0, {})] * 2
    assert "a further round would take up to" in only.stopped
    assert summary.startswith("a larger budget: no trial came to its end")
