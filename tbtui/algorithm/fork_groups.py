"""Groups whose siblings share a prefix: where a step's trials are forked (`group_from=fork`). Pure.

A group of a task compares trials from their first turn on. A group of forks compares what follows
a state s that one of those trials, the trunk, has led to: each sibling samples its turns anew from
s, has a reward r, and an advantage by its own group's mean. The shared turns are in its prompt, and
masked. By the policy-gradient theorem its gradient, the mean over siblings of A grad log p(own
tokens), has the expectation grad V(s), as if s were a task of its own: exactly so with
`leave_one_out`, and times (n - 1) / n with `centred`. That holds given s, however s was chosen,
since siblings are drawn after the choice and independently of it. So states may be chosen by what
their group's trials did.

Chosen are trunks of the groups whose rewards vary most, p(1 - p) for rewards of 0 and 1: there it
is undecided whether the task is solved, and siblings are likeliest to differ. The trunk in the
group and the turn, from the second to the last, are drawn evenly: over trials of K turns drawn from
the policy, the expectation of grad V(s(k)) is the gradient of the whole with the terms of turn j
weighted by (j - 1) / (K - 1). So beside groups of whole trials, later turns are learned faster.
(States on the way as starts of further rollouts: the vine of TRPO, Schulman et al. 2015, arXiv
1502.05477, section 5.2; VinePPO, Kazemnejad et al. 2024, arXiv 2410.01679.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trunk:
    """A trial that may be forked."""

    trial: str
    reward: float | None
    turns: int
    """A trial of one turn can't be: its siblings began there, too."""


@dataclass(frozen=True, slots=True)
class ForkPlace:
    """Where a group of forks begins: just before this turn."""

    trial: str
    turn: int


def fork_places(
    groups: Sequence[Sequence[Trunk]], count: int, rng: random.Random
) -> list[ForkPlace]:
    """At most `count` places, one in each of the groups whose rewards vary most.

    A group in which all rewards are equal has none, nor has one without a trial of two turns.
    """
    undecided = sorted((group for group in groups if _variance(group)), key=_variance, reverse=True)
    places: list[ForkPlace] = []
    for group in undecided:
        trunks = [each for each in group if each.turns > 1]
        if trunks and len(places) < count:
            trunk = rng.choice(trunks)
            places.append(ForkPlace(trunk.trial, rng.randint(2, trunk.turns)))
    return places


def _variance(group: Sequence[Trunk]) -> float:
    rewards = [each.reward for each in group if each.reward is not None]
    if not rewards:
        return 0.0
    mean = math.fsum(rewards) / len(rewards)
    return math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)
