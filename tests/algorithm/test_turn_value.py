"""Where a value turns, and the credit of turns: unbiased on a small process solved exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.turn_value import (
    Search,
    most_measured,
    next_place,
    read_turn,
    turn_advantages,
    turning_point,
)
from tbtui.errors import UserError


def measure(search: Search, places: int, value: Callable[[int], float]) -> dict[int, float]:
    values: dict[int, float] = {}
    while (place := next_place(search, places, values)) is not None:
        assert place not in values
        values[place] = value(place)
    return values


@given(places=st.integers(2, 300), data=st.data())
def test_the_only_change_is_found_with_few_measurements(places: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, places - 1))
    before, after = data.draw(st.permutations([0.0, 0.25, 1.0]))[:2]
    values = measure("bisect", places, lambda place: before if place <= at else after)
    point = turning_point(values)
    assert point is not None
    assert (point.place, point.before, point.after) == (at, before, after)
    assert len(values) <= most_measured("bisect", places)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=60))
def test_of_any_values_bisection_ends_at_a_change(series: list[float]) -> None:
    values = measure("bisect", len(series), lambda place: series[place - 1])
    assert len(values) <= most_measured("bisect", len(series))
    point = turning_point(values)
    if series[0] == series[-1]:
        assert set(values) <= {1, len(series)}
    else:
        assert point is not None and point.before != point.after


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=40))
def test_all_finds_the_largest_change(series: list[float]) -> None:
    values = measure("all", len(series), lambda place: series[place - 1])
    assert len(values) == len(series) == most_measured("all", len(series))
    changes = [abs(a - b) for a, b in itertools.pairwise(series)]
    point = turning_point(values)
    assert (abs(point.before - point.after) if point else 0.0) == max(changes)


def test_the_last_place_may_be_known_from_the_outset() -> None:
    values = {41: 0.0}
    while (place := next_place("bisect", 41, values)) is not None:
        values[place] = float(place <= 17)
    point = turning_point(values)
    assert point is not None and point.place == 17 and point.lost
    assert len(values) - 1 <= most_measured("bisect", 41) - 1


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5"])
def test_what_is_no_turn_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"--turn {text}: give a turn's number"):
        read_turn(text)


# A small Markov decision process, solved exactly: three turns of two actions each. Its states are
# the actions so far; the policy is a table of logits.

TURNS = 3
SOLVED = {(0, 1, 0), (0, 1, 1), (1, 1, 1)}
LOGITS = {
    history: 0.8 * np.sin(1.0 + 2.0 * sum(2 * each + 1 for each in history) + len(history))
    for turns in range(TURNS)
    for history in itertools.product((0, 1), repeat=turns)
}


def chance(history: tuple[int, ...], action: int) -> float:
    """The chance of an action: the logistic of the state's logit is that of action 1."""
    one = 1 / (1 + math.exp(-LOGITS[history]))
    return one if action else 1 - one


def value(history: tuple[int, ...]) -> float:
    if len(history) == TURNS:
        return float(history in SOLVED)
    return sum(chance(history, each) * value((*history, each)) for each in (0, 1))


def exact_gradient() -> dict[tuple[int, ...], float]:
    """The derivative of the chance to solve the task by each state's logit."""
    gradient = {}
    for history in LOGITS:
        reach = math.prod(chance(history[:turn], each) for turn, each in enumerate(history))
        up, down = value((*history, 1)), value((*history, 0))
        gradient[history] = reach * chance(history, 1) * chance(history, 0) * (up - down)
    return gradient


def draw(rng: np.random.Generator, history: tuple[int, ...]) -> tuple[int, ...]:
    """A trial to its end, from a state."""
    while len(history) < TURNS:
        history = (*history, int(rng.random() < chance(history, 1)))
    return history


def estimates(
    rng: np.random.Generator, trials: int, forks: int | None
) -> list[dict[tuple[int, ...], float]]:
    """Estimates of that gradient from one trial each, with turns valued by so many forks; None:
    with the trial's advantage for all turns. One sibling is the baseline."""
    found = []
    for _ in range(trials):
        trial, sibling = draw(rng, ()), draw(rng, ())
        reward, first = float(trial in SOLVED), float(sibling in SOLVED)
        if forks is None:
            credit: tuple[float, ...] = (reward - first,) * TURNS
        else:
            later = [
                float(np.mean([draw(rng, trial[:turn]) in SOLVED for _ in range(forks)]))
                for turn in range(1, TURNS)
            ]
            credit = turn_advantages([first, *later], reward)
        gradient = dict.fromkeys(LOGITS, 0.0)
        for turn, (action, advantage) in enumerate(zip(trial, credit, strict=True)):
            history = trial[:turn]
            gradient[history] += advantage * (action - chance(history, 1))
        found.append(gradient)
    return found


@pytest.mark.parametrize("forks", [None, 1, 4])
def test_the_gradient_is_unbiased(forks: int | None) -> None:
    exact = exact_gradient()
    found = estimates(np.random.default_rng(7), 20_000, forks)
    for history, derivative in exact.items():
        each = np.array([gradient[history] for gradient in found])
        error = each.std() / math.sqrt(len(each))
        assert abs(each.mean() - derivative) <= 4 * error, history


def test_credit_by_turn_has_less_variance() -> None:
    def variance(forks: int | None) -> float:
        found = estimates(np.random.default_rng(8), 4000, forks)
        table = np.array([[gradient[history] for history in LOGITS] for gradient in found])
        return float(table.var(axis=0).sum())

    assert variance(4) < 0.8 * variance(None)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(0, 1))
def test_turns_share_out_the_advantage_of_the_trial(values: list[float], reward: float) -> None:
    assert math.isclose(
        math.fsum(turn_advantages(values, reward)), reward - values[0], abs_tol=1e-9
    )
