"""Percentiles out of Prometheus's histograms, over what was counted between two looks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many observations were at most so large: upper bound -> count, the last bound infinite.

    The counts grow with the bounds, and with time.
    """

    counts: Mapping[float, float]

    @property
    def total(self) -> float:
        return self.counts.get(math.inf, 0.0)

    def plus(self, other: Histogram) -> Histogram:
        """Of both together, by the bounds that both have."""
        common = self.counts.keys() & other.counts.keys()
        return Histogram({bound: self.counts[bound] + other.counts[bound] for bound in common})

    def since(self, before: Histogram) -> Histogram | None:
        """What came after `before`; None where the counting has begun anew in between."""
        gained = {
            bound: count - before.counts.get(bound, 0.0) for bound, count in self.counts.items()
        }
        return None if any(count < 0 for count in gained.values()) else Histogram(gained)

    def quantile(self, q: float) -> float | None:
        """As Prometheus's `histogram_quantile`: linear within a bucket, whose lower bound is 0 for
        the first one; beyond the last finite bound, that bound. None without observations.

        https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
        """
        bounds = sorted(self.counts)
        if len(bounds) < 2 or bounds[-1] != math.inf or self.total <= 0:
            return None
        rank = q * self.total
        low, below = 0.0, 0.0
        for high in bounds[:-1]:
            count = self.counts[high]
            if count >= rank and count > below:
                return low + (high - low) * (rank - below) / (count - below)
            # Rounding of floats must not make them fall.
            low, below = high, max(below, count)
        return bounds[-2]


class HistogramWindow:
    """What a server's histograms have gained in the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, Mapping[str, Histogram]]] = deque()

    def gained(self, now: float, histograms: Mapping[str, Histogram]) -> dict[str, Histogram]:
        """A look at `now` (seconds on any clock). Histograms without a look before are left out:
        what they count may be hours old."""
        if any(
            new.since(old) is None
            for name, old in (self._looks[-1][1] if self._looks else {}).items()
            if (new := histograms.get(name)) is not None
        ):
            self._looks.clear()  # the server was started again
        self._looks.append((now, histograms))
        # One from before the window stays, to tell what came within it.
        while len(self._looks) > 2 and self._looks[1][0] <= now - self._seconds:
            self._looks.popleft()
        before = self._looks[0][1]
        found = {
            name: new.since(before[name]) for name, new in histograms.items() if name in before
        }
        return {name: gain for name, gain in found.items() if gain is not None and gain.total > 0}


def added_up(several: Iterable[Mapping[str, Histogram]]) -> dict[str, Histogram]:
    """By name, over several servers or engines."""
    sums: dict[str, Histogram] = {}
    for histograms in several:
        for name, each in histograms.items():
            sums[name] = sums[name].plus(each) if name in sums else each
    return sums
