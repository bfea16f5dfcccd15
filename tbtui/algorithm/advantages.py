"""How much better a trial did than its siblings.

Group-relative advantages after Shao et al. 2024 (GRPO, arXiv 2402.03300, section 4.1), without
the division by the group's standard deviation, which Liu et al. 2025 (arXiv 2503.20783) show to
favour groups that are almost always or almost never solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Disposition = Literal["trained", "constant", "short"]


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """Of a group of G trials. `advantages` has length G; None: the trial has no part in it."""

    baseline: float | None
    advantages: tuple[float | None, ...]
    disposition: Disposition


def centred(rewards: Sequence[float | None], min_group: int) -> GroupAdvantages:
    """Reward minus the mean reward of the group's *scored* trials.

    A trial without a reward is left out of the baseline too. A group with fewer than `min_group`
    scored trials is `short`; one whose rewards are all equal is `constant` and has no gradient.
    """
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < min_group or not scored:
        return GroupAdvantages(None, tuple(None for _ in rewards), "short")
    baseline = sum(scored) / len(scored)
    constant = max(scored) == min(scored)
    return GroupAdvantages(
        baseline,
        tuple(
            None if reward is None else 0.0 if constant else reward - baseline for reward in rewards
        ),
        "constant" if constant else "trained",
    )
