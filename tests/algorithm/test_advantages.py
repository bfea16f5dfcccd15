"""Group-relative advantages: what must hold for any rewards."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.advantages import (
    EPSILON,
    LARGEST_REWARD,
    Method,
    advantages,
    centred,
    group_advantages,
    needs_whole_batch,
)

METHODS: tuple[Method, ...] = ("centred", "std", "leave_one_out", "batch")
methods = st.sampled_from(METHODS)
rewards = st.lists(st.none() | st.floats(0, 1, width=32), min_size=1, max_size=16)


@given(rewards, st.integers(1, 4))
def test_only_scored_trials_take_part(group: list[float | None], least: int) -> None:
    result = centred(group, least)
    scored = [reward for reward in group if reward is not None]
    assert len(result.advantages) == len(group)
    if len(scored) < max(1, least):
        assert result.disposition == "short"
        assert set(result.advantages) == {None}
        return
    assert [a is None for a in result.advantages] == [r is None for r in group]
    assert result.baseline == pytest.approx(np.mean(scored))
    assert sum(a for a in result.advantages if a is not None) == pytest.approx(0, abs=1e-6)


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=16), st.integers(0, 99))
def test_the_order_of_a_group_does_not_matter(group: list[float], seed: int) -> None:
    order = list(range(len(group)))
    random.Random(seed).shuffle(order)
    straight = centred(group, 2).advantages
    shuffled = centred([group[i] for i in order], 2).advantages
    for place, i in enumerate(order):
        assert shuffled[place] == pytest.approx(straight[i], abs=1e-9)


@given(rewards)
def test_an_unscored_trial_changes_nothing_for_its_siblings(group: list[float | None]) -> None:
    alone = centred(group, 1)
    joined = centred([*group, None], 1)
    assert joined.advantages == (*alone.advantages, None)
    assert joined.baseline == alone.baseline


roundings = st.lists(st.floats(-4e-10, 4e-10), min_size=2, max_size=16)


@given(st.floats(-1e6, 1e6), roundings, methods)
def test_a_constant_group_has_no_gradient(
    reward: float, rounded: list[float], method: Method
) -> None:
    for group in ([reward] * len(rounded), [reward * (1 + part) for part in rounded]):
        (result,) = advantages([group], method, 2)
        assert result.disposition == "constant"
        assert set(result.advantages) == {0.0}


@given(st.floats(-1e6, 1e6), st.floats(1e-8, 1), methods)
def test_rewards_that_differ_by_more_than_rounding_are_a_signal(
    reward: float, part: float, method: Method
) -> None:
    group = [reward, reward + max(abs(reward), 1e-3) * part]
    (result,) = advantages([group], method, 2)
    assert result.disposition == "trained"
    assert all(result.advantages)


batches = st.lists(
    st.lists(st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
)


def reference(batch: list[list[float | None]], method: Method, least: int) -> list[float]:
    """Every scored trial's advantage, straight from the definitions."""
    groups = [[r for r in group if r is not None] for group in batch]
    groups = [group for group in groups if len(group) >= max(1, least)]
    deviation = np.std([r - np.mean(group) for group in groups for r in group]) if groups else 0
    values: list[float] = []
    for group in groups:
        for i, reward in enumerate(group):
            others = group[:i] + group[i + 1 :]
            alone = len(set(group)) == 1
            match method:
                case "centred":
                    values.append(reward - np.mean(group))
                case "std":
                    values.append(
                        0 if alone else (reward - np.mean(group)) / (np.std(group) + EPSILON)
                    )
                case "leave_one_out":
                    values.append(0 if alone else reward - np.mean(others))
                case "batch":
                    values.append(0 if alone else (reward - np.mean(group)) / (deviation + EPSILON))
    return values


@given(batches, methods, st.integers(1, 3))
def test_every_method_is_its_definition(
    batch: list[list[float | None]], method: Method, least: int
) -> None:
    results = advantages(batch, method, least)
    values = [a for result in results for a in result.advantages if a is not None]
    assert values == pytest.approx(reference(batch, method, least), abs=1e-6)
    for group, result in zip(batch, results, strict=True):
        assert result.disposition == centred(group, least).disposition
        assert result.baseline == centred(group, least).baseline
        if result.disposition != "trained":
            assert set(result.advantages) <= {0.0, None}


@given(batches, methods, st.randoms(use_true_random=False))
def test_the_order_of_the_groups_does_not_matter(
    batch: list[list[float | None]], method: Method, random_: random.Random
) -> None:
    order = list(range(len(batch)))
    random_.shuffle(order)
    straight = advantages(batch, method, 2)
    shuffled = advantages([batch[i] for i in order], method, 2)
    assert shuffled == [straight[i] for i in order]


@given(batches, methods)
def test_a_method_that_streams_needs_one_group_at_a_time(
    batch: list[list[float | None]], method: Method
) -> None:
    if needs_whole_batch(method):
        varied: list[float | None] = [0.0, 1.0]
        with pytest.raises(ValueError, match="all groups of the batch"):
            group_advantages(varied, method, 2)
    else:
        alone = [group_advantages(group, method, 2) for group in batch]
        assert alone == advantages(batch, method, 2)


@given(st.floats(-1e6, 1e6), st.integers(1, 16), methods)
def test_a_constant_batch_is_zero_and_never_undefined(
    reward: float, size: int, method: Method
) -> None:
    (result,) = advantages([[reward] * size], method, 1)
    assert set(result.advantages) == {0.0}


@given(st.sampled_from([1e308, -1e308, 1e20, math.inf, math.nan]), methods)
def test_what_is_no_reward_has_no_part_in_its_group(beyond: float, method: Method) -> None:
    plain = advantages([[0.0, 1.0, None], [1.0, 0.5, 0.0]], method, 2)
    assert advantages([[0.0, 1.0, beyond], [1.0, 0.5, 0.0]], method, 2) == plain
    largest = advantages([[-LARGEST_REWARD, LARGEST_REWARD]], method, 2)[0].advantages
    assert all(value is not None and math.isfinite(value) for value in largest)
