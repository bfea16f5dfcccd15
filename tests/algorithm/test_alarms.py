"""Alarms on made-up histories: each is raised by what it is for, once, and by nothing else."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from tbtui.algorithm.alarms import (
    HISTORY,
    NO_SIGNAL_STEPS,
    REARM_STEPS,
    WINDOW,
    Alarm,
    AlarmDetector,
    HeldOutResult,
)

Metrics = dict[str, float]


def healthy(reward: float = 0.6, **other: float) -> Metrics:
    """A step of 32 scored trials in four groups."""
    return {
        "env/all/reward/total": reward,
        "env/all/total_episodes": 32.0,
        "env/all/unscored_episodes": 0.0,
        "env/all/turns_per_episode": 2.1,
        "env/all/by_group/frac_mixed": 0.75,
        "optim/surprise": 0.1,
        "optim/kl_sample_train_v2": 1e-12,
        "optim/max_logprob_gap": 1e-5,
    } | {name.replace("__", "/"): value for name, value in other.items()}


def told(steps: list[Metrics]) -> list[Alarm]:
    watch = AlarmDetector()
    return [alarm for number, step in enumerate(steps, 1) for alarm in watch.step(number, step)]


def names(steps: list[Metrics]) -> list[str]:
    return [alarm.name for alarm in told(steps)]


def noisy(rewards: list[float], seed: int = 0, spread: float = 0.08) -> Iterator[Metrics]:
    """Means of steps on different tasks."""
    rng = random.Random(seed)
    for reward in rewards:
        yield healthy(min(1.0, max(0.0, reward + rng.gauss(0, spread))))


def learning(steps: int) -> list[float]:
    return [0.9 - 0.6 * math.exp(-step / 12) for step in range(steps)]


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"env__all__outcome__output_truncated": 28.0}, "max_tokens: raise it"),
        ({"env__all__frac_truncated_turns": 0.9}, "90% of the answers"),
        (
            {
                "env__all__outcome__output_truncated": 2.0,
                "env__all__outcome__context_overflow": 20.0,
            },
            "on_outcome.context_overflow=mask",
        ),
    ],
)
def test_answers_that_are_cut_off_are_told_in_the_first_step(metrics: Metrics, says: str) -> None:
    (alarm,) = told([healthy(0.0, **metrics)])
    assert alarm.name == "truncated"
    assert says in alarm.text
    some = {"env__all__outcome__output_truncated": 8.0, "env__all__frac_truncated_turns": 0.3}
    assert told([healthy(**some)]) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_learns_or_stands_still_raises_nothing(seed: int) -> None:
    assert told(list(noisy(learning(80), seed))) == []
    assert told(list(noisy([0.4] * 150, seed, spread=0.15))) == []


def test_a_collapse_of_the_reward_is_told_once() -> None:
    rewards = [*learning(30), *[0.1] * 30]
    (alarm,) = told(list(noisy(rewards)))
    assert alarm.name == "reward_collapse"
    assert 30 < alarm.step <= 30 + WINDOW
    assert alarm.numbers["reward"] < alarm.numbers["best"] * 2 / 3
    assert "it was 0.8" in alarm.text


def test_a_step_of_hard_tasks_is_no_collapse() -> None:
    assert names(list(noisy([*[0.8] * 20, 0.2, *[0.8] * 20]))) == []


def test_rising_turns_at_a_steady_reward_are_told_before_the_reward_falls() -> None:
    steps = [healthy(0.6, env__all__turns_per_episode=2.1 + 0.02 * (n % 3)) for n in range(20)]
    steps += [healthy(0.6, env__all__turns_per_episode=2.1 + 0.4 * n) for n in range(10)]
    (alarm,) = told(steps)
    assert alarm.name == "reward_collapse"
    assert "turns rose from 2.1" in alarm.text
    # Longer work that pays is no alarm.
    paid = [healthy(0.3, env__all__turns_per_episode=2.1 + 0.01 * (n % 3)) for n in range(20)]
    paid += [healthy(0.9, env__all__turns_per_episode=5.0 + 0.01 * (n % 3)) for n in range(20)]
    assert names(paid) == []


@pytest.mark.parametrize(
    ("later", "words"), [(0.004, "hardly explores"), (2.5, "falls apart")], ids=["none", "all"]
)
def test_surprise_near_zero_or_beyond_bounds(later: float, words: str) -> None:
    steps = [healthy() for _ in range(10)] + [healthy(optim__surprise=later) for _ in range(8)]
    (alarm,) = told(steps)
    assert (alarm.name, words in alarm.text) == ("logprob_collapse", True)
    # One odd step is none.
    assert names([*steps[:11], *[healthy() for _ in range(10)]]) == []


def test_a_sampler_that_disagrees_with_the_trainer() -> None:
    assert names([healthy(optim__kl_sample_train_v2=0.02)]) == ["sampler_mismatch"]
    assert names([healthy(optim__max_logprob_gap=7.0)]) == ["sampler_mismatch"]
    assert names([healthy(optim__kl_sample_train_v2=math.nan)]) == ["sampler_mismatch"]
    # Older weights differ by what was learned since.
    stale = {"async__staleness_max": 1.0, "optim__kl_sample_train_v2": 0.02}
    assert names([healthy(**stale, optim__max_logprob_gap=7.0)]) == []
    assert names([healthy(**stale | {"optim__kl_sample_train_v2": 0.5})]) == ["sampler_mismatch"]


@pytest.mark.parametrize(
    ("reward", "words"), [(1.0, "harder tasks"), (0.0, "easier tasks"), (0.5, "end alike")]
)
def test_steps_without_anything_to_learn_from(reward: float, words: str) -> None:
    idle = healthy(reward, env__all__by_group__frac_mixed=0.0)
    (alarm,) = told([healthy(), *[idle] * (NO_SIGNAL_STEPS + 3)])
    assert (alarm.name, alarm.step) == ("no_signal", 1 + NO_SIGNAL_STEPS)
    assert words in alarm.text
    assert alarm.numbers["steps"] == NO_SIGNAL_STEPS
    assert names([*[idle] * (NO_SIGNAL_STEPS - 1), healthy(reward), idle]) == []


def test_steps_in_which_nothing_was_scored_are_survived() -> None:
    bare = {"env/all/total_episodes": 32.0, "env/all/unscored_episodes": 32.0,
            "env/all/by_group/frac_short": 1.0}  # fmt: skip
    (alarm,) = told([bare] * 20)
    assert alarm.name == "no_signal"
    assert "no trial had a reward" in alarm.text
    assert told([{}] * (NO_SIGNAL_STEPS * 4)) == []


def test_a_jump_in_reward_with_shrinking_turns() -> None:
    before = [healthy(0.4 + 0.02 * (n % 3), env__all__turns_per_episode=6.0) for n in range(10)]
    hacked = [healthy(0.95, env__all__turns_per_episode=2.0) for _ in range(5)]
    (alarm,) = told([*before, *hacked])
    assert alarm.name == "reward_hacking"
    assert alarm.numbers["reward"] > alarm.numbers["reward_before"] + 0.25
    honest = [healthy(0.95, env__all__turns_per_episode=5.5) for _ in range(5)]
    assert names([*before, *honest]) == []


def evaluated(*rates: float, trials: int = 48) -> list[Alarm]:
    watch = AlarmDetector()
    return [
        alarm
        for number, rate in enumerate(rates)
        for alarm in watch.evaluation(HeldOutResult(number * 10, rate * trials, trials))
    ]


def test_below_the_base_model_beyond_noise() -> None:
    (alarm,) = evaluated(0.5, 0.55, 0.2, 0.2)
    assert (alarm.name, alarm.step) == ("below_base", 20)
    assert "it was 0.50 of 48 after step 0" in alarm.text
    assert evaluated(0.5, 0.4, 0.45) == []
    assert evaluated(0.5, 0.2, trials=8) == []
    assert [alarm.step for alarm in evaluated(0.5, 0.1, 0.6, 0.1)] == [10, 30]


def test_other_temperatures_are_not_compared() -> None:
    watch = AlarmDetector()
    watch.evaluation(HeldOutResult(0, 48, 48, temperature=0.1))
    assert watch.evaluation(HeldOutResult(10, 10, 48, temperature=1.0)) == []
    assert watch.evaluation(HeldOutResult(20, 0, 0, temperature=0.1)) == []


def test_an_alarm_is_raised_again_only_after_it_was_gone_for_a_while() -> None:
    bad = healthy(optim__kl_sample_train_v2=0.5)
    assert names([bad] * 30) == ["sampler_mismatch"]
    assert names([bad, *[healthy()] * (REARM_STEPS - 1), bad]) == ["sampler_mismatch"]
    assert names([bad, *[healthy()] * REARM_STEPS, bad]) == ["sampler_mismatch"] * 2


def test_a_watch_that_is_fed_the_past_goes_on_as_if_it_had_never_stopped() -> None:
    steps = list(noisy([*learning(30), *[0.1] * 20]))
    whole = told(steps)
    for cut in (5, 33, 40):
        watch = AlarmDetector()
        past = [a for n, step in enumerate(steps[:cut], 1) for a in watch.step(n, step)]
        rest = [a for n, step in enumerate(steps[cut:], cut + 1) for a in watch.step(n, step)]
        assert past + rest == whole


def test_old_steps_are_forgotten() -> None:
    watch = AlarmDetector()
    for number in range(HISTORY * 2):
        watch.step(number, healthy())
    assert len(watch._history) == HISTORY
