"""The value of a trial's turns: where a task was lost.

The value of a turn, V(k), is the chance that the task is solved when turn k and all that follow are
sampled anew from the state before it. It is estimated from n forks (Monte Carlo, as the value of a
step in Kazemnejad et al. 2024, VinePPO, arXiv 2410.01679, with turns in place of steps), with
Wilson's interval. A trial of K turns ends with what it has: V(K + 1) is its reward.

**Where it turned.** Bisection measures the first place and halves from there, always on into the
half over which the value changes more: at most 2 + log2(places) measurements, rounded up, find two
neighbours with a change between them. Where the value changes once it is that change; where it goes
up and down it is one of them. Places (turns of a trial, checkpoints of a run) are numbered from 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tbtui.errors import UserError

type Search = Literal["bisect", "all"]
"""Which turns are measured: those where a bisection looks, or each."""


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """The largest change of the value between two neighbouring places."""

    place: int
    """The change is from this place to the next."""
    before: float
    after: float

    @property
    def lost(self) -> bool:
        return self.after < self.before


def search_of(text: object) -> Search | None:
    """The search that is called so."""
    match text:
        case "bisect" | "all":
            return text
        case _:
            return None


def read_turn(text: str) -> int | Search:
    """A turn's number, or which turns to measure. Raises `UserError`."""
    if (search := search_of(text)) is not None:
        return search
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--turn {text}: give a turn's number, from 1; or bisect, or all")
    return int(text)


def next_place(search: Search, places: int, values: Mapping[int, float]) -> int | None:
    """The place to measure next; None: enough is known.

    Args:
        places: how many there are, two or more.
        values: of those that are known, from 0 to 1; the last may be known from the outset.
    """
    if search == "all":
        return next((place for place in range(1, places + 1) if place not in values), None)
    low, high = 1, places
    for end in (low, high):
        if end not in values:
            return end
    if values[low] == values[high]:
        return None  # there is no change to look for
    while high - low > 1:
        middle = (low + high) // 2
        if middle not in values:
            return middle
        if abs(values[low] - values[middle]) >= abs(values[middle] - values[high]):
            high = middle
        else:
            low = middle
    return None


def most_measured(search: Search, places: int) -> int:
    """At most so many places are measured, those at both ends included."""
    if search == "all":
        return places
    return min(places, 2 + math.ceil(math.log2(max(1, places - 1))))


def turning_point(values: Mapping[int, float]) -> TurningPoint | None:
    """The largest change between neighbours that were both measured; None where none changes."""
    pairs = [
        TurningPoint(a, values[a], values[b])
        for a, b in itertools.pairwise(sorted(values))
        if b == a + 1 and values[a] != values[b]
    ]
    return max(pairs, key=lambda pair: abs(pair.before - pair.after), default=None)
