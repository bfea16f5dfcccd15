"""What a screen (`screen_trials`) does to the gradient: groups whose first rewards are equal have
no other trials."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.advantages import group_advantages

SIZE = 6


def gradient(rewards: Sequence[int], p: float) -> float:
    """The policy passes with chance p; by its logit the score of an outcome is r - p."""
    result = group_advantages([float(reward) for reward in rewards], "leave_one_out", 2)
    scores = [reward - p for reward in rewards]
    parts = [
        (advantage or 0.0) * score
        for advantage, score in zip(result.advantages, scores, strict=True)
    ]
    return math.fsum(parts) / SIZE


def expected(p: float, screen: int) -> float:
    """Exactly, over all outcomes of a group; a group that doesn't pass its screen has none."""
    total = 0.0
    for rewards in itertools.product((0, 1), repeat=SIZE):
        chance = math.prod(p if reward else 1 - p for reward in rewards)
        if len(set(rewards[:screen])) > 1:
            total += chance * gradient(rewards, p)
    return total


def weight(p: float, screen: int) -> float:
    """What the guide says that a task's gradient is multiplied by: the share of the pairs of trials
    whose rewards differ that belong to groups that pass."""
    fail, rest = 1 - p, SIZE - screen
    inside = screen * (screen - 1)
    across = 2 * screen * rest * (1 - (p ** (screen - 1) + fail ** (screen - 1)) / 2)
    outside = rest * (rest - 1) * (1 - p**screen - fail**screen)
    return (inside + across + outside) / (SIZE * (SIZE - 1))


@given(p=st.floats(0.01, 0.99), screen=st.integers(2, SIZE))
def test_a_screen_weighs_the_gradient_of_a_task_and_does_not_turn_it(p: float, screen: int) -> None:
    """Unscreened, leave-one-out is unbiased: the gradient of p by its logit is p(1-p)."""
    assert expected(p, screen) == pytest.approx(weight(p, screen) * p * (1 - p), abs=1e-12)
    assert screen / SIZE - 1e-9 <= weight(p, screen) <= 1 + 1e-9


def test_without_a_screen_nothing_is_weighed() -> None:
    assert weight(0.3, SIZE) == pytest.approx(1)
