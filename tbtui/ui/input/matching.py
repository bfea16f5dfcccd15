"""Ranks what can be gone to by what is typed: fuzzily by names, word by word by the rest."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import get_args

from textual.fuzzy import FuzzySearch

from tbtui.view.targets import Target, TargetKind

KINDS: tuple[TargetKind, ...] = get_args(TargetKind)

_SLICE_SEC = 0.004
"""How long the app's loop is held up at a time."""
_CLEAR = 1.4
"""Score per letter below which scattered letters are no match."""
_MOST_WAYS = 500
"""Ways to find a word's letters in a name that are compared; of more, the first is taken."""
_STEP = re.compile(r"s(\d+)")


@dataclass(frozen=True, slots=True)
class Match:
    """A target, and how well it matches."""

    target: Target
    score: float


class Matcher:
    """What is typed: words, all of which have to match. `s3` is what belongs to step 3."""

    def __init__(self, text: str) -> None:
        self.words = tuple(_plain(word) for word in text.split())
        self._fuzzy = FuzzySearch(case_sensitive=True)

    def score(self, target: Target) -> float:
        """How well a target matches; 0: it does not."""
        name, total = _plain(target.name), 0.0
        rest = f"{target.kind} {target.detail}".lower()
        for word in self.words:
            if not (found := self._word(word, name, rest, target)):
                return 0.0
            total += found
        return total

    def positions(self, name: str) -> set[int]:
        """The characters of a name that the words stand for."""
        plain = _plain(name)
        return {at for word in self.words for at in self._find(word, plain)[1]}

    def _word(self, word: str, name: str, rest: str, target: Target) -> float:
        if (step := _STEP.fullmatch(word)) and target.step == int(step[1]):
            # The step itself comes first, then its groups and trials.
            return 100.0 if target.kind == "step" else 4.0 * len(word)
        score = self._find(word, name)[0]
        return score or (float(len(word)) if word in rest else 0.0)

    def _find(self, word: str, name: str) -> tuple[float, Sequence[int]]:
        if word in name:
            return self._fuzzy.match(word, name)
        first: Sequence[int] = _subsequence(word, name)
        if not first:
            return 0.0, ()
        if prod(name.count(letter) for letter in word) > _MOST_WAYS:
            score = self._fuzzy.score(name, first)
        else:
            score, first = self._fuzzy.match(word, name)
        return (score, first) if score >= _CLEAR * len(word) else (0.0, ())


def _plain(text: str) -> str:
    # A setting's words are joined by underscores, which the matcher takes for letters.
    return text.lower().replace("_", " ")


def _subsequence(word: str, name: str) -> list[int]:
    """The first places of a word's letters in a name, one after the other; empty: not all are."""
    places, at = [], -1
    for letter in word:
        if (at := name.find(letter, at + 1)) < 0:
            return []
        places.append(at)
    return places


async def ranked(matcher: Matcher, targets: Sequence[Target], rows: int) -> list[Match]:
    """The best matches, kind by kind, the kind of the best first; some of each kind.

    The app's loop goes on meanwhile: it is held up for some milliseconds at a time.

    Args:
        rows: how many can be seen at once; of several kinds each gets its share of them.
    """
    by_kind: dict[TargetKind, list[Match]] = {}
    began = time.monotonic()
    for target in targets:
        if score := matcher.score(target) if matcher.words else 1.0:
            by_kind.setdefault(target.kind, []).append(Match(target, score))
        if time.monotonic() - began > _SLICE_SEC:
            await asyncio.sleep(0)
            began = time.monotonic()
    for matches in by_kind.values():
        matches.sort(key=lambda match: -match.score)
    return list(_shares(by_kind, rows))


def _shares(by_kind: dict[TargetKind, list[Match]], rows: int) -> Iterable[Match]:
    most = _ALONE if len(by_kind) == 1 else max(3, rows // max(1, len(by_kind)))

    def best_first(kind: TargetKind) -> tuple[float, int]:
        return -by_kind[kind][0].score, KINDS.index(kind)

    for kind in sorted(by_kind, key=best_first):
        yield from islice(by_kind[kind], most)


_ALONE = 200
"""Rows of a kind that is the only one."""
