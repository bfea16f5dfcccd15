"""Group-relative advantages: what must hold for any rewards."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.advantages import centred

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


@given(st.floats(0, 1), st.integers(2, 16))
def test_a_constant_group_has_no_gradient(reward: float, size: int) -> None:
    result = centred([reward] * size, 2)
    assert result.disposition == "constant"
    assert set(result.advantages) == {0.0}
