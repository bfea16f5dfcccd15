"""How much better a trial did than its siblings.

Group-relative advantages after Shao et al. 2024 (GRPO, arXiv 2402.03300, section 4.1.2), in four
units. With the rewards r of a group's G scored trials and their mean m:

    centred        r - m: without the division by the deviation, which Liu et al. 2025 (Dr. GRPO,
                   arXiv 2503.20783, section 3.1) show to favour groups that are almost always or
                   almost never solved
    std            (r - m) / (s + EPSILON), s the group's population deviation (divided by G)
    leave_one_out  r minus the mean of the *other* G - 1 rewards, which is (r - m) G / (G - 1)
                   (RLOO, Ahmadian et al. 2024, arXiv 2402.14740)
    batch          (r - m) / (s + EPSILON), s the population deviation of r - m over all scored
                   trials of the batch, constant groups included (the baseline variant of
                   REINFORCE++, Hu et al. 2025, arXiv 2501.03262)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tbtui.vocabulary import Advantage, all_equal
from tbtui.vocabulary import Disposition as Disposition

Method = Advantage
"""How a reward becomes an advantage."""

EPSILON = 1e-6
"""Added to a deviation, so that rewards that differ by rounding alone are not blown up."""

LARGEST_REWARD = 1e9
"""Far beyond what a verifier may say and a penalty may take; its square is still a number."""


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """The advantages of a group of G trials: length G; None: the trial has no part in it.

    `baseline` is the mean reward of the scored trials, whatever the method; None in a short group.
    """

    baseline: float | None
    advantages: tuple[float | None, ...]
    disposition: Disposition


def needs_whole_batch(method: Method) -> bool:
    """Whether a group's advantages depend on the other groups, so that it can't be trained on
    before they have finished."""
    return method == "batch"


def advantages(
    groups: Sequence[Sequence[float | None]], method: Method, min_group: int
) -> list[GroupAdvantages]:
    """Advantages of a whole batch, group by group, in order.

    Rewards have any unit; None is a trial without one. A group with fewer than `min_group` scored
    trials is `short`: it has no advantages, and no part in the batch's deviation. A group whose
    rewards are all equal but for rounding is `constant`: its advantages are exactly zero under
    every method.
    """
    if not needs_whole_batch(method):
        return [group_advantages(group, method, min_group) for group in groups]
    results = [centred(group, min_group) for group in groups]
    every = [value for result in results for value in result.advantages if value is not None]
    # Group means are subtracted, so the mean over the batch is zero.
    deviation = math.sqrt(math.fsum(value * value for value in every) / max(1, len(every)))
    return [_scaled(result, 1 / (deviation + EPSILON)) for result in results]


def group_advantages(
    rewards: Sequence[float | None], method: Method, min_group: int
) -> GroupAdvantages:
    """Advantages of one group of G rewards, by a method that needs no other group.

    Raises:
        ValueError: the method needs the whole batch.
    """
    result = centred(rewards, min_group)
    scored = [value for value in result.advantages if value is not None]
    if result.disposition != "trained":
        return result
    match method:
        case "centred":
            return result
        case "std":
            deviation = math.sqrt(math.fsum(value * value for value in scored) / len(scored))
            return _scaled(result, 1 / (deviation + EPSILON))
        case "leave_one_out":
            return _scaled(result, len(scored) / (len(scored) - 1))
        case "batch":
            raise ValueError("the advantages of method 'batch' need all groups of the batch")


def centred(rewards: Sequence[float | None], min_group: int) -> GroupAdvantages:
    """Reward minus the mean reward of the group's *scored* trials.

    A trial without a reward is left out of the baseline too. So is one whose reward is no number
    or beyond `LARGEST_REWARD`.
    """
    rewards = [r if r is not None and abs(r) <= LARGEST_REWARD else None for r in rewards]
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < min_group or not scored:
        return GroupAdvantages(None, tuple(None for _ in rewards), "short")
    baseline = math.fsum(scored) / len(scored)
    constant = all_equal(scored)
    return GroupAdvantages(
        baseline,
        tuple(
            None if reward is None else 0.0 if constant else reward - baseline for reward in rewards
        ),
        "constant" if constant else "trained",
    )


def _scaled(result: GroupAdvantages, factor: float) -> GroupAdvantages:
    return replace(
        result,
        advantages=tuple(None if value is None else value * factor for value in result.advantages),
    )
