from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.rewards import RewardSettings, longest_context, shaped
from tbtui.algorithm.segments import Call


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0.0), (600, 0.0), (700, 0.125), (800, 0.25), (1000, 0.5), (2000, 0.5)],
)
def test_the_overlong_penalty_rises_over_the_buffer(tokens: int, penalty: float) -> None:
    settings = RewardSettings(overlong_penalty=0.5, overlong_buffer=400)
    assert shaped(1.0, 3, tokens, 1000, settings) == pytest.approx(1.0 - penalty)


def test_every_turn_costs() -> None:
    assert shaped(1.0, 3, 10, 1000, RewardSettings(turn_penalty=0.1)) == pytest.approx(0.7)


@given(st.floats(-1, 1), st.integers(0, 50), st.integers(0, 10_000))
def test_without_penalties_a_reward_is_untouched(reward: float, turns: int, tokens: int) -> None:
    assert shaped(reward, turns, tokens, 4096, RewardSettings()) == reward


def test_the_longest_context_is_that_of_one_call() -> None:
    none = np.zeros(0, np.float32)
    calls = [Call((1, 2, 3), (4,), np.zeros(1, np.float32)), Call((1, 2), (), none)]
    assert longest_context(calls) == 4
    assert longest_context([]) == 0
