"""Where a value turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.turn_value import Search, most_measured, next_place, read_turn, turning_point
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
