"""What a run may spend: it warns, ends in time, and counts what was spent before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbtui.catalog.split import Split
from tbtui.config import RunConfig, read_config
from tbtui.engines.grpo.budget import RunBudget
from tbtui.engines.grpo.config_checks import grpo_problems
from tbtui.engines.grpo.context import EngineContext
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    BudgetReached,
    CheckpointSaved,
    EvalFinished,
    StepFinished,
    TrialFinished,
)

from .conftest import Bench
from .test_engine import by_index
from .test_resume import uninterrupted

PRICES = {"prompt": 2.0, "sampled": 5.0, "trained": 3.0}


def totals(bench: Bench) -> list[float]:
    return [event.metrics["cost/total_usd"] for event in bench.events(StepFinished)]


@pytest.mark.parametrize("off_policy", [0, 2])
async def test_a_cap_is_passed_by_less_than_a_step_costs(bench: Bench, off_policy: int) -> None:
    """With a stand-in policy that is priced: all that is sampled counts, trained or not."""
    bench.script = by_index
    settings: dict[str, Any] = {
        "prices": PRICES,
        "max_steps": 40,
        "eval_every": 1,
        "max_steps_off_policy": off_policy,
    }
    limit = 0.002
    summary = await bench.engine(**settings, budget={"dollars": limit}).run()
    steps = bench.events(StepFinished)
    assert 2 < len(steps) < 40
    assert f"{len(steps)} steps" in summary and "budget.dollars is $0.002" in summary
    costs = [event.metrics["cost/step_usd"] for event in steps]
    last = max(
        *(event.metrics["cost/total_usd"] for event in steps),
        *(event.metrics["cost/total_usd"] for event in bench.events(EvalFinished)),
    )
    assert limit <= last + max(costs)
    assert last <= limit + max(costs)
    # What was sampled is what was trained: no batch was begun that could not be paid.
    trained = {f"s{event.step:04d}" for event in steps}
    sampled = {event.trial[:5] for event in bench.events(TrialFinished)}
    assert {name for name in sampled if name.startswith("s")} == trained
    assert bench.events(CheckpointSaved)[-1].step == len(steps)
    reached = bench.events(BudgetReached)
    assert [event.ends for event in reached] in ([False, True], [True], [False])
    assert all(event.spent >= 0.8 * limit for event in reached)


async def test_rollouts_are_those_of_training_and_the_last_weights_are_evaluated(
    bench: Bench,
) -> None:
    bench.script = by_index
    summary = await bench.engine(max_steps=9, eval_every=0, budget={"rollouts": 9.0}).run()
    # Four in a step: 8 are fewer than 9, and 12 are not.
    assert [event.metrics["progress/rollouts"] for event in bench.events(StepFinished)] == [
        4,
        8,
        12,
    ]
    assert [event.step for event in bench.events(EvalFinished)] == [0, 3]
    assert summary.endswith("stopped after 12 rollouts: budget.rollouts is 9 rollouts")
    warned, ended = bench.events(BudgetReached)
    assert (warned.spent, warned.ends) == (8, False)
    assert (ended.spent, ended.ends) == (12, True)


async def test_an_evaluation_that_is_not_paid_for_is_left_out(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(max_steps=9, eval_every=0, eval_group_size=8, budget={"tokens": 1.0}).run()
    assert [event.step for event in bench.events(EvalFinished)] == [0]
    assert not bench.events(StepFinished)
    bench.heldout = 0


@pytest.mark.parametrize("unit", ["dollars", "rollouts", "tokens"])
async def test_a_resumed_run_counts_what_was_spent_before(tmp_path: Path, unit: str) -> None:
    settings: dict[str, Any] = {"prices": PRICES, "max_steps": 9, "eval_every": 0, "save_every": 1}
    whole, _ = await uninterrupted(tmp_path, **settings, budget={"rollouts": 9.0})
    last = whole.events(EvalFinished)[-1].metrics
    kinds = ("prompt", "sampled", "trained")
    spent = {
        "dollars": last["cost/total_usd"],
        "rollouts": 12.0,
        "tokens": sum(last[f"tokens/total/{k}"] for k in kinds),
    }[unit]
    whole.settings = settings | {"budget": {unit: spent * 1.01}}
    await whole.resume()
    # One more step at the most passes it.
    assert [event.step for event in whole.events(StepFinished)] == [1, 2, 3, 4]


async def test_a_live_run_gets_another_budget(bench: Bench) -> None:
    bench.script, bench.heldout = by_index, 0
    engine = bench.engine(max_steps=6, budget={"rollouts": 5.0})
    engine.queue.submit(Command("set", RUN, arguments={"budget": {"rollouts": 100.0}}))
    summary = await engine.run()
    assert summary.startswith("6 steps") and "stopped" not in summary


def test_hours_and_tokens_are_counted_alike(bench: Bench) -> None:
    config = RunConfig(budget={"hours": 2.0, "tokens": 100.0})
    zero: dict[Any, float] = {"dollars": 0.0, "hours": 0.0, "rollouts": 0.0, "tokens": 0.0}
    budget = RunBudget(EngineContext(config, Split((), ()), bench.policy, bench.journal))
    assert budget.begins(0) and not budget.begins(1)  # what a step spends is unknown
    budget.after_step(zero | {"hours": 0.9, "tokens": 30.0})
    assert budget.begins(1) and not budget.begins(2)
    budget.after_evaluation(zero | {"hours": 1.1, "tokens": 30.0})
    budget.after_step(zero | {"hours": 2.1, "tokens": 60.0})
    assert not budget.begins(0)
    # What was left before the last step pays for the 0.2 hours of an evaluation.
    assert budget.pays_evaluation()
    budget.after_step(zero | {"hours": 2.2, "tokens": 61.0})
    assert not budget.pays_evaluation()
    assert budget.why_ended() == "stopped after 2.2 hours: budget.hours is 2 hours"


def test_what_nobody_counts_is_refused() -> None:
    problems = [each.text for each in grpo_problems(read_config({"budget": {"euros": 5}}))]
    assert any("budget.euros: no run counts that" in text for text in problems)
    problems = [each.text for each in grpo_problems(read_config({"budget": {"dollars": 5}}))]
    assert any("there are no prices to count by" in text for text in problems)
