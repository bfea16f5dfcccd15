from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.evaluation import (
    TaskAttempts,
    attempts,
    pass_at_k,
    pass_rate,
    pass_rates,
    signal_share,
    student_quantile,
)

tasks_of_attempts = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.integers(0, n).map(lambda passed: TaskAttempts(passed, n))
    ),
    min_size=1,
    max_size=12,
)


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_pass(scored: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, scored))
    k = data.draw(st.integers(1, scored))
    outcomes = [i < passed for i in range(scored)]
    draws = list(itertools.combinations(outcomes, k))
    share = sum(any(draw) for draw in draws) / len(draws)
    assert pass_at_k(passed, scored, k) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("p", "k"), [(0.3, 1), (0.3, 4), (0.05, 8)])
def test_pass_at_k_is_unbiased(p: float, k: int) -> None:
    n = 10
    expected = sum(
        math.comb(n, passed) * p**passed * (1 - p) ** (n - passed) * pass_at_k(passed, n, k)
        for passed in range(n + 1)
    )
    assert expected == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_many_attempts_do_not_overflow() -> None:
    assert pass_at_k(1, 5000, 2500) == 0.5


@pytest.mark.parametrize(("passed", "scored", "k"), [(0, 2, 3), (3, 2, 1), (0, 2, 0), (-1, 2, 1)])
def test_what_can_not_be_estimated_is_refused(passed: int, scored: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(passed, scored, k)


def test_a_pass_is_the_whole_reward_and_no_reward_is_no_attempt() -> None:
    assert attempts([1.0, 0.999, 0.0, None, 2.0]) == TaskAttempts(passed=2, scored=4)
    assert attempts([None, None]) == TaskAttempts(0, 0)


@given(tasks_of_attempts)
def test_rates_are_means_over_tasks_within_their_bounds(tasks: list[TaskAttempts]) -> None:
    rates = pass_rates(tasks)
    assert list(rates) == list(range(1, min(task.scored for task in tasks) + 1))
    for k, rate in rates.items():
        each = [pass_at_k(task.passed, task.scored, k) for task in tasks]
        assert rate.value == pytest.approx(sum(each) / len(each))
        assert 0 <= rate.low <= rate.value <= rate.high <= 1
        assert rate.high - rate.low > 0
    values = [rate.value for rate in rates.values()]
    assert values == sorted(values)


@given(tasks_of_attempts, st.randoms())
def test_the_order_of_tasks_and_empty_ones_do_not_matter(
    tasks: list[TaskAttempts], rng: random.Random
) -> None:
    mixed = [*tasks, TaskAttempts(0, 0)]
    rng.shuffle(mixed)
    one, other = pass_rate(tasks, 1), pass_rate(mixed, 1)
    assert one is not None
    assert other is not None
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))


def test_without_a_scored_attempt_there_is_no_rate() -> None:
    assert pass_rate([TaskAttempts(0, 0)], 1) is None
    assert pass_rates([TaskAttempts(0, 0)]) == {}
    assert pass_rates([]) == {}


def test_one_attempt_per_task_is_wilsons_interval() -> None:
    # Newcombe 1998, Statistics in Medicine 17: 15 of 148, method 3.
    tasks = [TaskAttempts(1, 1)] * 15 + [TaskAttempts(0, 1)] * 133
    rate = pass_rate(tasks, 1)
    assert rate is not None
    assert (rate.low, rate.high) == pytest.approx((0.0624, 0.1605), abs=5e-5)


def test_attempts_that_agree_count_as_one() -> None:
    """Eight copies of the same attempt tell no more than one of them."""
    single = pass_rate([TaskAttempts(1, 1)] * 6 + [TaskAttempts(0, 1)] * 4, 1)
    copied = pass_rate([TaskAttempts(8, 8)] * 6 + [TaskAttempts(0, 8)] * 4, 1)
    assert copied == single
    independent = pass_rate([TaskAttempts(5, 8)] * 6 + [TaskAttempts(4, 8)] * 4, 1)
    assert independent is not None
    assert single is not None
    assert independent.high - independent.low < 0.5 * (single.high - single.low)


@pytest.mark.parametrize("passed", [0, 4])
def test_agreement_of_few_tasks_is_no_certainty(passed: int) -> None:
    rate = pass_rate([TaskAttempts(passed, 4)] * 3, 1)
    assert rate is not None
    assert rate.high - rate.low > 0.5


def test_one_task_is_judged_by_its_own_attempts() -> None:
    first, both = pass_rate([TaskAttempts(3, 10)], 1), pass_rate([TaskAttempts(3, 10)], 2)
    assert first is not None
    assert both is not None
    assert (first.low, first.high) == pytest.approx((0.1078, 0.6032), abs=1e-4)
    assert (both.low, both.high) == pytest.approx((1 - 0.8922**2, 1 - 0.3968**2), abs=1e-3)


@pytest.mark.parametrize("tasks", [5, 20])
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 2.0), (50.0, 50.0)])
@pytest.mark.parametrize("k", [1, 2])
def test_the_interval_covers_the_truth(tasks: int, a: float, b: float, k: int) -> None:
    """Tasks drawn from a population (difficulties Beta-distributed), four attempts at each."""
    rng = np.random.default_rng(1)
    # E[1 - (1 - p)^k] for p ~ Beta(a, b)
    fails = math.prod((b + i) / (a + b + i) for i in range(k))
    covered, runs = 0, 600
    for _ in range(runs):
        passes = rng.binomial(4, rng.beta(a, b, tasks))
        rate = pass_rate([TaskAttempts(int(passed), 4) for passed in passes], k)
        assert rate is not None
        covered += rate.low <= 1 - fails <= rate.high
    assert covered / runs >= 0.9


@pytest.mark.parametrize(
    ("freedom", "quantile", "within"),
    [
        (1, 12.7062047362, 1e-10),
        (2, 4.30265272975, 1e-10),
        (3, 3.18244630528, 4e-3),
        (5, 2.57058183564, 3e-4),
        (10, 2.22813885199, 1e-5),
        (30, 2.04227245630, 4e-8),
        (100, 1.98397151852, 1e-10),
    ],
)
def test_students_quantile(freedom: int, quantile: float, within: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=within)


def test_tasks_that_differ_widen_the_interval_by_their_variance() -> None:
    # Two of four tasks pass: the variance of their mean is 1/12, Student's t has 3 degrees of
    # freedom, so there are .25 / (1/12) (1.95996 / 3.17862)^2 = 1.14 attempts; 4 at the least.
    rate = pass_rate([TaskAttempts(4, 4)] * 2 + [TaskAttempts(0, 4)] * 2, 1)
    assert rate is not None
    assert (rate.low, rate.high) == pytest.approx((0.150039, 0.849961), abs=1e-5)
    # Rates .4 and .6: .25 / (1/300) of them would be 75 attempts, Student's t leaves 28.5 of 40.
    rate = pass_rate([TaskAttempts(4, 10), TaskAttempts(6, 10)] * 2, 1)
    assert rate is not None
    assert (rate.low, rate.high) == pytest.approx((0.327720, 0.672280), abs=1e-5)


@pytest.mark.parametrize(("p", "size", "n"), [(0.3, 2, 6), (0.05, 4, 8), (0.5, 8, 8)])
def test_the_share_of_groups_with_a_signal_is_unbiased(p: float, size: int, n: int) -> None:
    """At every pass rate, and with nothing assumed of it."""
    expected = 0.0
    for passed in range(n + 1):
        found = signal_share([[1.0] * passed + [0.0] * (n - passed)], size)
        assert found is not None
        expected += math.comb(n, passed) * p**passed * (1 - p) ** (n - passed) * found.value
    assert expected == pytest.approx(1 - p**size - (1 - p) ** size, abs=1e-12)


@pytest.mark.parametrize(
    ("tasks", "size", "value"),
    [
        ([[0.0] * 4, [1.0] * 4], 8, 0.0),  # nothing is invented for what never passed, or always
        ([[0.0] * 4, [0.0, 0.0, 0.0, 1.0]], 8, 0.5),  # fewer trials: all of them are one group
        ([[0.0, 0.5], [0.5, 0.5]], 2, 0.5),  # rewards in part differ too
        ([[0.0, 1.0], [1.0]], 4, 1.0),  # one trial of a task says nothing
    ],
)
def test_the_share_of_groups_with_a_signal(
    tasks: list[list[float]], size: int, value: float
) -> None:
    found = signal_share(tasks, size)
    assert found is not None
    assert found.value == pytest.approx(value)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 0.2, "few tasks never make it certain"


def test_without_two_trials_of_a_task_nothing_is_said_of_a_signal() -> None:
    assert signal_share([[1.0], []], 4) is None
