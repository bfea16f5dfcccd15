"""Pass rates of an evaluation, and how far they can be trusted.

A task's pass@k is the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, section 2.1):
of all ways to choose k of its attempts, the share that contains one that passed. An evaluation's
pass@k is the mean over its tasks.

The 95% interval is that of a Wilson score interval (Wilson 1927) at an *effective* number of
attempts. Attempts at the same task resemble each other, so an interval that takes all of them as
independent is too narrow; the effective number is the one at which independent attempts would
have the variance that is seen between the tasks (Kish 1965, the design effect; Korn & Graubard
1998 put it into an interval for a proportion, with Student's quantile for the few tasks that the
variance is taken from). It is kept between the number of tasks and that of attempts. With one
attempt per task this is exactly Wilson's interval. Resampling tasks (the bootstrap) is the usual
alternative; with five tasks it covers the truth 60-85% of the time where this covers it 90% and
more, and where every task agrees it claims certainty. Bounds stay inside [0, 1] by construction.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_Z = 1.959963984540054
"""97.5% quantile of the normal distribution."""
PASS_REWARD = 1.0


@dataclass(frozen=True, slots=True)
class TaskAttempts:
    """Scored attempts at one task and how many passed; attempts without a reward don't count."""

    passed: int
    scored: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A pass rate with its 95% confidence interval: 0 <= low <= value <= high <= 1."""

    value: float
    low: float
    high: float


def attempts(rewards: Iterable[float | None]) -> TaskAttempts:
    """Counts the rewards of one task's attempts. To pass is to get the whole reward, 1 (or more);
    None is an attempt that could not be scored."""
    scored = [reward for reward in rewards if reward is not None]
    return TaskAttempts(sum(reward >= PASS_REWARD for reward in scored), len(scored))


def pass_at_k(passed: int, scored: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k attempts passes.

    1 - C(scored - passed, k) / C(scored, k), with integers throughout until the last division.

    Raises:
        ValueError: unless 0 <= passed <= scored and 1 <= k <= scored.
    """
    if not (0 <= passed <= scored and 1 <= k <= scored):
        raise ValueError(f"pass@{k} of {scored} attempts, {passed} of them passed")
    every = math.comb(scored, k)
    return (every - math.comb(scored - passed, k)) / every


def pass_rate(tasks: Sequence[TaskAttempts], k: int) -> Rate | None:
    """pass@k, mean over the tasks that have a scored attempt; None if no task has.

    One task alone says nothing of others: the interval is then about that task, from its attempts
    taken as independent.

    Raises:
        ValueError: a task has scored attempts, but fewer than k.
    """
    counted = [task for task in tasks if task.scored]
    if not counted:
        return None
    if len(counted) == 1:
        return _one_task(counted[0], k)
    rates = [pass_at_k(task.passed, task.scored, k) for task in counted]
    value = math.fsum(rates) / len(rates)
    trials = sum(task.scored for task in counted)
    return _wilson(value, _effective_attempts(rates, value, trials))


def pass_rates(tasks: Sequence[TaskAttempts]) -> dict[int, Rate]:
    """pass@k for every k that each task with a scored attempt has the attempts for."""
    most = min((task.scored for task in tasks if task.scored), default=0)
    rates = {k: pass_rate(tasks, k) for k in range(1, most + 1)}
    return {k: rate for k, rate in rates.items() if rate is not None}


def signal_share(tasks: Sequence[Sequence[float]], size: int) -> Rate | None:
    """Expected share of groups of `size` trials whose rewards are not all equal, mean over tasks.

    A task's share is that of all ways to choose so many of its trials whose rewards differ, which
    is unbiased: nothing is assumed of tasks that have always passed, or never. Of a task with fewer
    trials all of them are one group. That is a lower bound, for the more trials a group has, the
    less likely are they to be all alike.

    Args:
        tasks: rewards of each task's scored trials; a task with fewer than two says nothing.

    Returns None if no task says anything.
    """
    known = [task for task in tasks if len(task) > 1]
    if not known or size < 2:
        return None
    shares = [_differing(task, min(size, len(task))) for task in known]
    value = math.fsum(shares) / len(shares)
    groups = sum(max(1, len(task) // size) for task in known)
    single = len(shares) == 1
    return _wilson(value, groups if single else _effective_attempts(shares, value, groups))


def _differing(rewards: Sequence[float], size: int) -> float:
    """Share of the ways to choose `size` of these rewards in which not all are equal."""
    alike = sum(math.comb(count, size) for count in Counter(rewards).values())
    every = math.comb(len(rewards), size)
    return (every - alike) / every


def _one_task(task: TaskAttempts, k: int) -> Rate:
    """Bounds on the chance p of one attempt give those on k: 1 - (1 - p)^k rises with p."""
    value = pass_at_k(task.passed, task.scored, k)
    single = _wilson(task.passed / task.scored, task.scored)
    low, high = 1 - (1 - single.low) ** k, 1 - (1 - single.high) ** k
    return Rate(value, min(low, value), max(high, value))


def _effective_attempts(rates: Sequence[float], mean: float, trials: int) -> float:
    """Independent attempts that would be as informative as these tasks (at least two of them)."""
    tasks = len(rates)
    if mean in (0, 1):
        return tasks  # nothing tells how alike attempts at a task are: take them as one
    variance = math.fsum((rate - mean) ** 2 for rate in rates) / (tasks - 1) / tasks
    if variance == 0:
        return trials
    effective = mean * (1 - mean) / variance * (_Z / student_quantile(tasks - 1)) ** 2
    return min(max(effective, tasks), trials)


def _wilson(value: float, trials: float) -> Rate:
    """Wilson's score interval for `value` seen in `trials` independent attempts."""
    shrink = 1 + _Z**2 / trials
    centre = (value + _Z**2 / (2 * trials)) / shrink
    half = _Z / shrink * math.sqrt(value * (1 - value) / trials + (_Z / (2 * trials)) ** 2)
    # At 0 and 1 one bound is the value itself, but for rounding.
    return Rate(value, min(value, max(0.0, centre - half)), max(value, min(1.0, centre + half)))


def student_quantile(freedom: int) -> float:
    """97.5% quantile of Student's t: exact for 1 and 2 degrees of freedom, beyond that by the
    expansion of Abramowitz & Stegun 26.7.5 (within 0.5% at 3 degrees, better above)."""
    if freedom == 1:
        return math.tan(math.pi * (0.975 - 0.5))
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
