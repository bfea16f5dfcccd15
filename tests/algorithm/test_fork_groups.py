"""Where trials are forked for training; unbiased on a small process solved exactly."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.advantages import group_advantages
from tbtui.algorithm.fork_groups import Trunk, fork_places
from tests.algorithm.test_turn_value import LOGITS, SOLVED, TURNS, chance, draw, value


def trunks(*rewards: float | None, turns: int = 5) -> list[Trunk]:
    return [Trunk(f"{rewards}-{n}", reward, turns) for n, reward in enumerate(rewards)]


def test_groups_whose_rewards_vary_most_are_forked() -> None:
    split, mostly, solved = trunks(1, 0, 1, 0), trunks(1, 1, 1, 0), trunks(1, 1, 1, 1)
    places = fork_places([solved, mostly, split], 2, random.Random(0))
    forked = [place.trial.rpartition("-")[0] for place in places]
    assert forked == ["(1, 0, 1, 0)", "(1, 1, 1, 0)"]
    without = [solved, trunks(None, None), trunks(1, 0, turns=1)]
    assert fork_places(without, 2, random.Random(0)) == []
    assert len(fork_places([split, mostly], 1, random.Random(0))) == 1


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([None, 0.0, 0.5, 1.0]), st.integers(1, 6)), max_size=8),
        max_size=6,
    ),
    st.integers(1, 4),
    st.integers(),
)
def test_places_are_within_trials(
    groups: list[list[tuple[float | None, int]]], count: int, seed: int
) -> None:
    named = [
        [Trunk(f"{group}/{n}", reward, turns) for n, (reward, turns) in enumerate(members)]
        for group, members in enumerate(groups)
    ]
    places = fork_places(named, count, random.Random(seed))
    turns = {trunk.trial: trunk.turns for group in named for trunk in group}
    assert all(2 <= place.turn <= turns[place.trial] for place in places)
    forked = [place.trial.partition("/")[0] for place in places]
    assert len(forked) == len(set(forked)) <= count
    assert places == fork_places(named, count, random.Random(seed))


def test_every_turn_but_the_first_is_as_likely() -> None:
    group = trunks(1, 0, turns=4)
    turns = [fork_places([group], 1, random.Random(seed))[0].turn for seed in range(600)]
    assert all(150 < turns.count(turn) < 250 for turn in (2, 3, 4))


Gradient = dict[tuple[int, ...], float]


def forked(rng: np.random.Generator, start: tuple[int, ...], siblings: int) -> Gradient:
    """The gradient of a group of forks from a state: only what they sampled themselves counts."""
    ends = [draw(rng, start) for _ in range(siblings)]
    result = group_advantages([float(end in SOLVED) for end in ends], "leave_one_out", 2)
    gradient = dict.fromkeys(LOGITS, 0.0)
    for end, advantage in zip(ends, result.advantages, strict=True):
        for turn in range(len(start), TURNS):
            state = end[:turn]
            gradient[state] += (advantage or 0.0) * (end[turn] - chance(state, 1)) / siblings
    return gradient


def exact(start: tuple[int, ...], weight: float = 1.0) -> Gradient:
    """The derivative of the chance to solve the task from `start` by each state's logit."""
    gradient = dict.fromkeys(LOGITS, 0.0)
    for state in LOGITS:
        if state[: len(start)] == start:
            reach = math.prod(chance(state[:n], state[n]) for n in range(len(start), len(state)))
            gain = value((*state, 1)) - value((*state, 0))
            gradient[state] = weight * reach * chance(state, 1) * chance(state, 0) * gain
    return gradient


def agrees(found: list[Gradient], wanted: Gradient) -> None:
    for state, derivative in wanted.items():
        each = np.array([gradient[state] for gradient in found])
        assert abs(each.mean() - derivative) <= 4 * each.std() / math.sqrt(len(each)), state


@pytest.mark.parametrize("start", [(0,), (1,), (0, 1), (1, 1)])
def test_a_group_has_the_gradient_of_its_states_value(start: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    agrees([forked(rng, start, 4) for _ in range(8000)], exact(start))


def test_with_turns_drawn_evenly_the_terms_of_later_ones_count_more() -> None:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(12_000):
        trunk, turn = draw(rng, ()), int(rng.integers(2, TURNS + 1))
        found.append(forked(rng, trunk[: turn - 1], 4))
    whole = exact(())
    # Turn k is sampled anew in k - 1 of the TURNS - 1 choices.
    agrees(found, {s: whole[s] * len(s) / (TURNS - 1) for s in LOGITS})
