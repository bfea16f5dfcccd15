"""Which tasks to train on: what each is expected to teach, and seeded draws by it. Pure.

A task's pass rate p has a Beta posterior, from the rewards of its groups in training; what they
say fades with the optimiser steps since, because the policy changes (discounted posteriors, as of
bandits whose arms drift: Raj & Kalyani 2017, arXiv 1707.09727). Two ways to draw from it:

- `learnability`: with weights E[p(1-p)], the variance of a reward, which is what a group can teach
  (Foster et al. 2025, arXiv 2502.12272);
- `thompson`: a p is drawn from each posterior, and the tasks with the largest p(1-p) are taken
  (Thompson 1933).

Under both a share of the draws, the floor, is uniform, so that no task is forgotten. Of the others
half are of untried tasks, while there are any: what is known of a few would else be trained on
until it is learned, before the rest is ever seen. People weigh single tasks (`Say`): that
multiplies a weight; 0 mutes a task, a pinned one is in every batch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from tbtui.vocabulary import UNTRIED_SHARE, TaskSampling

Why = Literal["weight", "floor", "untried", "pinned"]
"""What a task was drawn by."""

_PRIOR = 0.1
"""Both parameters of the prior, which has the shape of a U: most tasks are never solved, or always.
Where they are, a flatter one keeps offering them for long (`tests/benchmarks/curriculum.py`)."""
_GRID = 400
_TAIL = 0.025

MAX_FACTOR = 1000.0
"""The largest factor that a person may give a task."""


@dataclass(frozen=True, slots=True)
class Beta:
    """The posterior of a pass rate."""

    a: float = _PRIOR
    b: float = _PRIOR

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    @property
    def learnability(self) -> float:
        """E[p(1-p)], from 0 to 0.25."""
        total = self.a + self.b
        return self.a * self.b / (total * (total + 1))

    @property
    def interval(self) -> tuple[float, float]:
        """The central 95% of it."""
        return _interval(self.a, self.b)

    def no_signal(self, size: int) -> float:
        """The chance that all rewards of a group of this size are equal: E[p^n] + E[(1-p)^n]."""
        passed = failed = 1.0
        for earlier in range(size):
            total = self.a + self.b + earlier
            passed *= (self.a + earlier) / total
            failed *= (self.b + earlier) / total
        return min(1.0, passed + failed)


@lru_cache(maxsize=4096)
def _interval(a: float, b: float) -> tuple[float, float]:
    """2.5% and 97.5% quantiles of Beta(a, b), within a cell of the grid."""
    cells = [(cell + 0.5) / _GRID for cell in range(_GRID)]
    logs = [(a - 1) * math.log(p) + (b - 1) * math.log1p(-p) for p in cells]
    most = max(logs)
    masses = [math.exp(each - most) for each in logs]
    whole, below = math.fsum(masses), 0.0
    low, high = 0.0, 1.0
    for p, mass in zip(cells, masses, strict=True):
        if below < _TAIL * whole <= below + mass:
            low = p
        if below < (1 - _TAIL) * whole <= below + mass:
            high = p
            break
        below += mass
    # Skewed as it may be, it is never shown beside its own mean.
    mean = a / (a + b)
    return min(low, mean), max(high, mean)


class PassRates:
    """The posterior of each task's pass rate, as of the last step that was finished.

    A step's groups count once the step is finished: a batch that is drawn while others are under
    way knows of the same ones, however the run was interrupted. Rewards between 0 and 1 count in
    part.
    """

    def __init__(self, half_life: float = math.inf) -> None:
        self.half_life = half_life
        """Optimiser steps after which what a group said counts half, from now on."""
        self.step = 0
        self._waiting: dict[int, dict[str, tuple[str, list[float]]]] = {}
        """Unfinished steps -> group -> its task and rewards."""
        self._counts: dict[str, tuple[float, float, int]] = {}
        """Task -> passed, failed, and the step at which these were so much."""

    def score(self, step: int, group: str, task: str, rewards: Iterable[float | None]) -> None:
        """Keep a group's rewards for the end of its step; None is no reward.

        Nothing counts twice: neither a group, nor a step that is trained again.
        """
        if step > self.step:
            scored = [min(1.0, max(0.0, each)) for each in rewards if each is not None]
            self._waiting.setdefault(step, {})[group] = task, scored

    def finish(self, step: int) -> None:
        """Count the groups of a step; steps finish in order."""
        if step <= self.step:
            return
        self.step = step
        rewards: dict[str, list[float]] = {}
        for task, scored in self._waiting.pop(step, {}).values():
            rewards.setdefault(task, []).extend(scored)
        for task, scored in rewards.items():
            passed, failed = self._faded(task)
            more = math.fsum(scored)
            self._counts[task] = passed + more, failed + len(scored) - more, step

    def seen(self, task: str) -> bool:
        """Whether anything is known of it."""
        return task in self._counts

    def of(self, task: str) -> Beta:
        """Its posterior; the prior where nothing is known."""
        passed, failed = self._faded(task)
        return Beta(_PRIOR + passed, _PRIOR + failed)

    def _faded(self, task: str) -> tuple[float, float]:
        passed, failed, step = self._counts.get(task, (0.0, 0.0, self.step))
        kept = 0.5 ** ((self.step - step) / self.half_life)
        return passed * kept, failed * kept


@dataclass(frozen=True, slots=True)
class Say:
    """What a person wants of a task. The default is nothing."""

    factor: float = 1.0
    """Multiplies its weight; 0: no group of it starts."""
    pinned: bool = False
    """It is in every batch."""

    @property
    def muted(self) -> bool:
        return self.factor == 0 and not self.pinned


NOTHING_SAID = Say()


@dataclass(frozen=True, slots=True)
class Draw:
    """A task that was drawn."""

    task: str
    why: Why


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses among `tasks` by what is known and wanted of each; tasks have names."""

    sampling: TaskSampling
    floor: float
    """Share of the draws that are uniform, from 0 to 1."""
    rates: PassRates
    said: Mapping[str, Say] = field(default_factory=dict)

    def weights(self, tasks: Sequence[str]) -> dict[str, float]:
        """What draws that are not uniform go by, on average; of the tasks that can be drawn."""
        return {task: self._weight(task) for task in tasks if not self._say(task).muted}

    def untried(self, tasks: Sequence[str]) -> dict[str, float]:
        """Those of these tasks of which nothing is known, with the factors that people gave them;
        none where that doesn't matter."""
        if self.sampling == "uniform":
            return {}
        factors = {task: self._say(task).factor for task in tasks if not self.rates.seen(task)}
        return {task: factor for task, factor in factors.items() if factor}

    def draw(
        self, tasks: Sequence[str], count: int, rng: random.Random, taken: Iterable[str] = ()
    ) -> list[Draw]:
        """`count` tasks, none twice before all were drawn once.

        Muted ones only where all are muted. `taken`: those that the batch has already.
        """
        pool = [task for task in tasks if not self._say(task).muted] or list(tasks)
        # One p for all draws of the batch: the best of it are taken, not the best one again.
        scores = {task: self._score(task, rng) for task in pool}
        have, drawn = set(taken), list[Draw]()
        pinned = [task for task in pool if self._say(task).pinned and task not in have]
        for task in pinned if len(pinned) <= count else rng.sample(pinned, count):
            drawn.append(Draw(task, "pinned"))
            have.add(task)
        while len(drawn) < count:
            left = [task for task in pool if task not in have]
            if not left:
                have, left = set(), pool
            task, why = self._next(left, scores, rng)
            drawn.append(Draw(task, why))
            have.add(task)
        return drawn

    def _next(
        self, left: Sequence[str], scores: Mapping[str, float], rng: random.Random
    ) -> tuple[str, Why]:
        by_floor = rng.random() < self.floor and self.sampling != "uniform"
        weights = [scores[task] for task in left]
        if by_floor or not any(weights):
            return rng.choice(left), "floor"
        if (untried := self.untried(left)) and rng.random() < UNTRIED_SHARE:
            return rng.choices([*untried], [*untried.values()])[0], "untried"
        if self.sampling == "thompson":
            return max(left, key=scores.__getitem__), "weight"
        return rng.choices(left, weights)[0], "weight"

    def _score(self, task: str, rng: random.Random) -> float:
        if self.sampling != "thompson":
            return self._weight(task)
        belief = self.rates.of(task)
        p = rng.betavariate(belief.a, belief.b)
        return self._say(task).factor * p * (1 - p)

    def _weight(self, task: str) -> float:
        even = self.sampling == "uniform"
        return self._say(task).factor * (1.0 if even else self.rates.of(task).learnability)

    def _say(self, task: str) -> Say:
        return self.said.get(task, NOTHING_SAID)
