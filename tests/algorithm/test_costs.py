"""What a step, an evaluation and a run consumed, in tokens and money."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.costs import (
    Costs,
    Prices,
    Spent,
    Tokens,
    outcome_metrics,
    sampled_tokens,
    turn_metrics,
)
from tbtui.algorithm.segments import Call

PRICES = {"prompt": 1.0, "sampled": 4.0, "trained": 2.0}


def test_every_outcome_is_counted_zeros_included() -> None:
    metrics = outcome_metrics(["solved", "failed", "solved"], ["solved", "failed", "lost"])
    assert metrics == {
        "env/all/outcome/solved": 2.0,
        "env/all/outcome/failed": 1.0,
        "env/all/outcome/lost": 0.0,
    }


def test_turns() -> None:
    assert turn_metrics([2, 4]) == {
        "env/all/total_turns": 6.0,
        "env/all/turns_per_episode": 3.0,
        "env/all/max_turns": 4.0,
    }
    assert turn_metrics([])["env/all/turns_per_episode"] == 0.0


def test_costs_of_a_step_and_of_a_useful_group() -> None:
    costs = Costs(Spent(), PRICES)
    tokens = Tokens(prompt=1_000_000, sampled=100_000, trained=500_000, calls=50)
    metrics = costs.step(tokens, 4, 32)
    assert metrics["cost/step_usd"] == pytest.approx(2.4)
    assert metrics["cost/useful_group_usd"] == pytest.approx(0.6)
    assert metrics["env/all/ob_tokens_per_turn"] == 20_000.0
    assert metrics["env/all/ac_tokens_per_turn"] == 2000.0
    assert metrics["tokens/in_sequences"] == 500_000.0
    metrics = costs.step(tokens, 0, 32)
    assert "cost/useful_group_usd" not in metrics
    assert metrics["cost/total_usd"] == pytest.approx(4.8)
    assert metrics["cost/total/useful_group_usd"] == pytest.approx(1.2)
    assert metrics["tokens/total/sampled"] == 200_000.0


@pytest.mark.parametrize(
    ("further", "usd"),
    [
        # 0.6 M read anew, 0.4 M from the cache, 0.1 M written, 0.5 M trained, 0.2 M scored
        ({}, 0.6 + 0.4 + 0.4 + 1.0 + 0.2),
        ({"cached": 0.1}, 0.6 + 0.04 + 0.4 + 1.0 + 0.2),
        ({"cached": 0.0, "scored": 0.5}, 0.6 + 0.4 + 1.0 + 0.1),
    ],
)
def test_each_kind_has_its_price(further: dict[str, float], usd: float) -> None:
    tokens = Tokens(1_000_000, 400_000, 100_000, 500_000, 200_000)
    assert Prices(**PRICES, **further).of(tokens) == pytest.approx(usd)


def test_what_was_never_told_or_done_is_left_out() -> None:
    plain = Costs(Spent(), {}).step(Tokens(10, None, 10, 10), 0, 8)
    assert not any(name.startswith("cost/") for name in plain)
    assert "env/all/ac_tokens_per_turn" not in plain
    assert "tokens/cached" not in plain
    assert "tokens/scored" not in plain
    told = Costs(Spent(), {}).step(Tokens(10, 0, 10, 10, 3), 0, 8)
    assert (told["tokens/cached"], told["tokens/total/cached"]) == (0.0, 0.0)
    assert (told["tokens/scored"], told["tokens/total/scored"]) == (3.0, 3.0)


def test_evaluations_cost_money_and_are_told_apart() -> None:
    costs = Costs(Spent(), PRICES)
    first = costs.evaluation(Tokens(prompt=2_000_000, cached=500_000, sampled=250_000, calls=8))
    assert first["cost/eval_usd"] == pytest.approx(3.0)
    assert first["tokens/eval/prompt"] == 2_000_000.0
    assert first["tokens/eval/cached"] == 500_000.0
    assert first["tokens/eval/sampled"] == 250_000.0
    assert "tokens/eval/trained" not in first
    assert (first["cost/total_usd"], first["cost/total/eval_usd"]) == (3.0, 3.0)
    step = costs.step(Tokens(prompt=1_000_000, sampled=250_000, trained=500_000), 2, 8)
    assert step["cost/step_usd"] == pytest.approx(3.0)
    assert step["cost/total_usd"] == pytest.approx(6.0)
    assert step["cost/total/eval_usd"] == pytest.approx(3.0)
    assert step["cost/total/useful_group_usd"] == pytest.approx(1.5)  # of training alone
    assert step["tokens/total/prompt"] == 3_000_000.0
    assert step["tokens/prompt"] == 1_000_000.0


def test_a_resumed_run_goes_on_counting() -> None:
    costs = Costs(Spent(), {**PRICES, "cached": 0.5})
    metrics = costs.evaluation(Tokens(5, 2, 1, calls=1))
    assert Spent.after(metrics).eval_usd == costs.spent.eval_usd
    metrics = costs.step(Tokens(3, 2, 2, 1, 4), 2, 8)
    again = Spent.after(metrics)
    assert (again.usd, again.eval_usd, again.useful_groups) == (
        costs.spent.usd,
        costs.spent.eval_usd,
        2,
    )
    assert again.rollouts == costs.spent.rollouts == 8
    assert again.tokens == Tokens(8, 4, 3, 1, 4)
    assert Spent.after({}) == Spent()


amounts = st.floats(0.001, 1e6)
counts = st.integers(1, 10**9)


@given(st.builds(Spent, st.builds(Tokens, *[counts] * 5), *[amounts] * 3, counts, counts, amounts))
def test_all_that_was_spent_is_in_the_metrics_of_the_last_step(spent: Spent) -> None:
    metrics = spent.metrics(Prices())
    assert Spent.after(metrics) == spent
    training = spent.usd - spent.eval_usd - spent.storage_usd
    each = metrics["cost/total/useful_group_usd"]
    assert each == pytest.approx(training / spent.useful_groups)
    assert not any(name.startswith("cost/") for name in spent.metrics(None))
    assert Prices().of(spent.tokens) == 0.0


def test_calls_in_tokens() -> None:
    def call(cached: int | None) -> Call:
        return Call((1, 2, 3), (4, 5), np.zeros(2, np.float32), cached_tokens=cached)

    assert sampled_tokens([call(None), call(None)]) == Tokens(6, None, 4, calls=2)
    assert sampled_tokens([call(None), call(2)]) == Tokens(6, 2, 4, calls=2)
    assert sampled_tokens([]) == Tokens()
