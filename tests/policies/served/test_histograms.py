"""Percentiles out of histograms, as Prometheus computes them."""

from __future__ import annotations

from math import inf

import pytest

from tbtui.policies.vllm.metrics import Histogram, HistogramWindow, added_up

# The example of ClickHouse's quantilePrometheusHistogram, which follows PromQL's.
PUBLISHED = Histogram({0.0: 6, 0.5: 11, 1.0: 14, inf: 19})


def test_a_quantile_lies_where_prometheus_puts_it() -> None:
    assert PUBLISHED.quantile(0.5) == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ({1.0: 10, inf: 10}, 0.5, 0.5),  # the first bucket begins at 0
        ({1.0: 0, 2.0: 4, inf: 4}, 0.75, 1.75),
        ({1.0: 4, 2.0: 4, 4.0: 8, inf: 8}, 0.5, 1.0),  # not within the empty bucket
        ({1.0: 1, 2.0: 2, inf: 10}, 0.95, 2.0),  # beyond the last finite bound
        ({1.0: 0, inf: 0}, 0.5, None),
        ({inf: 5}, 0.5, None),
        ({1.0: 5, 2.0: 7}, 0.5, None),  # without the infinite bound, nobody knows the total
        ({}, 0.5, None),
    ],
)
def test_edges(counts: dict[float, float], q: float, expected: float | None) -> None:
    assert Histogram(counts).quantile(q) == expected


def test_engines_are_added_up_before_the_quantile_is_taken() -> None:
    quick, slow = Histogram({1.0: 9, 2.0: 9, inf: 9}), Histogram({1.0: 0, 2.0: 1, inf: 1})
    both = added_up([{"e2e": quick}, {"e2e": slow, "queue": quick}])
    assert both["e2e"] == Histogram({1.0: 9, 2.0: 10, inf: 10})
    assert both["queue"] == quick


def test_only_bounds_that_both_have_can_be_added() -> None:
    one, other = Histogram({1.0: 1, 2.0: 2, inf: 3}), Histogram({2.0: 4, 4.0: 5, inf: 6})
    assert one.plus(other) == Histogram({2.0: 6, inf: 9})


def look(window: HistogramWindow, now: float, *counts: float) -> float | None:
    """Median of what the window has gained; `counts` of at most 1, at most 2, and all."""
    histogram = Histogram(dict(zip((1.0, 2.0, inf), counts, strict=True)))
    gained = window.gained(now, {"e2e": histogram})
    return gained["e2e"].quantile(0.5) if gained else None


def test_a_first_look_tells_nothing_of_the_last_minute() -> None:
    window = HistogramWindow(60)
    assert look(window, 0, 900, 1000, 1000) is None
    assert look(window, 5, 900, 1000, 1000) is None
    assert look(window, 10, 900, 1004, 1004) == 1.5


def test_what_came_before_the_window_is_forgotten() -> None:
    window = HistogramWindow(60)
    look(window, 0, 0, 0, 0)
    assert look(window, 5, 8, 8, 8) == 0.5
    for moment in range(10, 65, 5):
        assert look(window, moment, 8, 8, 8) == 0.5
    assert look(window, 65, 8, 8, 8) is None


def test_a_server_that_was_started_again_begins_anew() -> None:
    window = HistogramWindow(60)
    look(window, 0, 0, 0, 0)
    look(window, 5, 100, 100, 100)
    assert look(window, 10, 0, 2, 2) is None
    assert look(window, 15, 0, 6, 6) == 1.5
