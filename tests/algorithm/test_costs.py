"""What a step and a run consumed, in tokens and money."""

from __future__ import annotations

import pytest

from tbtui.algorithm.costs import Prices, Spent, Tokens, consumption, outcome_metrics, turn_metrics


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
    prices = Prices(prompt=1.0, sampled=4.0, trained=2.0)
    tokens = Tokens(prompt=1_000_000, sampled=100_000, trained=500_000)
    spent, metrics = consumption(tokens, 50, 4, Spent(), prices)
    assert metrics["cost/step_usd"] == pytest.approx(2.4)
    assert metrics["cost/useful_group_usd"] == pytest.approx(0.6)
    assert metrics["env/all/ac_tokens_per_turn"] == 2000.0
    spent, metrics = consumption(tokens, 50, 0, spent, prices)
    assert "cost/useful_group_usd" not in metrics
    assert metrics["cost/total_usd"] == pytest.approx(4.8)
    assert metrics["cost/total/useful_group_usd"] == pytest.approx(1.2)
    assert metrics["tokens/total/sampled"] == 200_000.0


def test_without_prices_nothing_is_said_of_money() -> None:
    _, metrics = consumption(Tokens(10, 10, 10), 0, 0, Spent())
    assert not any(name.startswith("cost/") for name in metrics)
    assert "env/all/ac_tokens_per_turn" not in metrics


def test_a_resumed_run_goes_on_counting() -> None:
    prices = Prices(1.0, 1.0, 1.0)
    spent, metrics = consumption(Tokens(3, 2, 1), 5, 2, Spent(), prices)
    assert Spent.after(metrics) == spent
    assert Spent.after({}) == Spent()
