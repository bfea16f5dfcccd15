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
    AlarmDetector,
    Detector,
    HeldOutResult,
    Step,
    below_base,
    logprob_collapse,
    no_signal,
    reward_collapse,
    reward_hacking,
    sampler_mismatch,
    truncated,
)
from tbtui.findings import COLLAPSED_NEGATIVE_LOGPROB, MISMATCH_KL, MISMATCH_KL_STALE, Finding
from tbtui.sampling import SamplingSettings

Metrics = dict[str, float]
DEFAULTS = SamplingSettings()


def healthy(reward: float = 0.6, **other: float) -> Metrics:
    """A step of 32 scored trials in four groups."""
    return {
        "env/all/reward/total": reward,
        "env/all/total_episodes": 32.0,
        "env/all/unscored_episodes": 0.0,
        "env/all/turns_per_episode": 2.1,
        "env/all/by_group/frac_mixed": 0.75,
        "optim/neg_logprob": 0.1,
        "optim/kl_sample_train_v2": 1e-12,
        "optim/max_logprob_gap": 1e-5,
    } | {name.replace("__", "/"): value for name, value in other.items()}


def told(steps: list[Metrics], sampling: SamplingSettings = DEFAULTS) -> list[Finding]:
    watch = AlarmDetector(sampling)
    return [alarm for number, step in enumerate(steps, 1) for alarm in watch.step(number, step)]


def names(steps: list[Metrics]) -> list[str]:
    return [alarm.rule for alarm in told(steps)]


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
    assert alarm.rule == "truncated"
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
    assert alarm.rule == "reward_collapse"
    assert 30 < alarm.step <= 30 + WINDOW
    assert alarm.numbers["reward"] < alarm.numbers["best"] * 2 / 3
    assert "it was 0.8" in alarm.text


def test_a_step_of_hard_tasks_is_no_collapse() -> None:
    assert names(list(noisy([*[0.8] * 20, 0.2, *[0.8] * 20]))) == []


def test_rising_turns_at_a_steady_reward_are_told_before_the_reward_falls() -> None:
    steps = [healthy(0.6, env__all__turns_per_episode=2.1 + 0.02 * (n % 3)) for n in range(20)]
    steps += [healthy(0.6, env__all__turns_per_episode=2.1 + 0.4 * n) for n in range(10)]
    (alarm,) = told(steps)
    assert alarm.rule == "reward_collapse"
    assert "turns rose from 2.1" in alarm.text
    # Longer work that pays is no alarm.
    paid = [healthy(0.3, env__all__turns_per_episode=2.1 + 0.01 * (n % 3)) for n in range(20)]
    paid += [healthy(0.9, env__all__turns_per_episode=5.0 + 0.01 * (n % 3)) for n in range(20)]
    assert names(paid) == []


@pytest.mark.parametrize(
    ("later", "words"), [(0.004, "hardly explores"), (2.5, "falls apart")], ids=["none", "all"]
)
def test_surprise_near_zero_or_beyond_bounds(later: float, words: str) -> None:
    steps = [healthy() for _ in range(10)] + [healthy(optim__neg_logprob=later) for _ in range(8)]
    (alarm,) = told(steps)
    assert (alarm.rule, words in alarm.text) == ("logprob_collapse", True)
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


def test_what_the_settings_ask_for_is_no_alarm() -> None:
    cold = SamplingSettings(temperature=0.4, thinks=False, agent="module:Own")
    sampled = {"optim__neg_logprob": 0.001, "optim__entropy": 0.3}
    assert told([healthy(**sampled)] * 6, cold) == []
    cut_off = SamplingSettings(truncates=True)
    assert told([healthy(**sampled)] * 6, cut_off) == []
    # Both log-probabilities are the model's own: nothing that is asked for makes them differ.
    for kl in (0.5, math.nan):
        (mismatch,) = told([healthy(optim__kl_sample_train_v2=kl)], cold)
        assert mismatch.rule == "sampler_mismatch"
    (certain,) = told([healthy(**sampled | {"optim__entropy": 0.001})] * 3, cold)
    assert certain.text.startswith("entropy is 0.0010 nats")
    (idle,) = told([healthy(0.0, env__all__by_group__frac_mixed=0.0)] * NO_SIGNAL_STEPS, cold)
    assert "easier tasks, or a shorter prompt with examples (agent=shell" in idle.text
    (cut,) = told([healthy(env__all__frac_truncated_turns=0.9)], cold)
    assert cut.text.endswith("max_tokens: raise it")
    (full,) = told([healthy(env__all__outcome__context_overflow=20.0)], cold)
    assert "raise context_limit; on_outcome" in full.text


@pytest.mark.parametrize(
    ("reward", "words"), [(1.0, "harder tasks"), (0.0, "easier tasks"), (0.5, "end alike")]
)
def test_steps_without_anything_to_learn_from(reward: float, words: str) -> None:
    idle = healthy(reward, env__all__by_group__frac_mixed=0.0)
    (alarm,) = told([healthy(), *[idle] * (NO_SIGNAL_STEPS + 3)])
    assert (alarm.rule, alarm.step) == ("no_signal", 1 + NO_SIGNAL_STEPS)
    assert words in alarm.text
    assert alarm.numbers["steps"] == NO_SIGNAL_STEPS
    assert names([*[idle] * (NO_SIGNAL_STEPS - 1), healthy(reward), idle]) == []


def test_steps_in_which_nothing_was_scored_are_survived() -> None:
    bare = {"env/all/total_episodes": 32.0, "env/all/unscored_episodes": 32.0,
            "env/all/by_group/frac_short": 1.0}  # fmt: skip
    (alarm,) = told([bare] * 20)
    assert alarm.rule == "no_signal"
    assert "no trial had a reward" in alarm.text
    assert told([{}] * (NO_SIGNAL_STEPS * 4)) == []


def test_a_jump_in_reward_with_shrinking_turns() -> None:
    before = [healthy(0.4 + 0.02 * (n % 3), env__all__turns_per_episode=6.0) for n in range(10)]
    hacked = [healthy(0.95, env__all__turns_per_episode=2.0) for _ in range(5)]
    (alarm,) = told([*before, *hacked])
    assert alarm.rule == "reward_hacking"
    assert alarm.numbers["reward"] > alarm.numbers["reward_before"] + 0.25
    honest = [healthy(0.95, env__all__turns_per_episode=5.5) for _ in range(5)]
    assert names([*before, *honest]) == []


def evaluated(*rates: float, trials: int = 48) -> list[Finding]:
    watch = AlarmDetector()
    return [
        alarm
        for number, rate in enumerate(rates)
        for alarm in watch.evaluation(HeldOutResult(number * 10, rate * trials, trials))
    ]


def test_below_the_base_model_beyond_noise() -> None:
    (alarm,) = evaluated(0.5, 0.55, 0.2, 0.2)
    assert (alarm.rule, alarm.step) == ("below_base", 20)
    assert "it was 0.50 of 48 after step 0" in alarm.text
    assert evaluated(0.5, 0.4, 0.45) == []
    assert evaluated(0.5, 0.2, trials=8) == []
    assert [alarm.step for alarm in evaluated(0.5, 0.1, 0.6, 0.1)] == [10, 30]


def test_other_temperatures_are_not_compared() -> None:
    watch = AlarmDetector()
    watch.evaluation(HeldOutResult(0, 48, 48, temperature=0.1))
    assert watch.evaluation(HeldOutResult(10, 10, 48, temperature=1.0)) == []
    assert watch.evaluation(HeldOutResult(20, 0, 0, temperature=0.1)) == []


def flat(count: int, reward: float, turns: float = 2.0, **more: float) -> list[Metrics]:
    """Steps of which each has 3,200 scored trials, unless `total_episodes` says otherwise."""
    of_all = {"reward/total": reward, "turns_per_episode": turns, "total_episodes": 3200.0, **more}
    return [{f"env/all/{name}": value for name, value in of_all.items()}] * count


def turning(*turns: float) -> list[Metrics]:
    return [step for each in turns for step in flat(1, 0.6, each)]


def sampled(*surprise: float) -> list[Metrics]:
    return [{"optim/neg_logprob": each} for each in surprise]


def differing(kl: float, gap: float = 0.0, stale: float = 0.0) -> list[Metrics]:
    names = ("optim/kl_sample_train_v2", "optim/max_logprob_gap", "async/staleness_max")
    return [dict(zip(names, (kl, gap, stale), strict=True))]


def cut(trials: float, ended: float, full: float, answers: float) -> list[Metrics]:
    names = ("total_episodes", "outcome/output_truncated", "outcome/context_overflow")
    metrics = dict(zip(names, (trials, ended, full), strict=True)) | {
        "frac_truncated_turns": answers
    }
    return [{f"env/all/{name}": value for name, value in metrics.items()}]


UP_TO = COLLAPSED_NEGATIVE_LOGPROB
LIMITS: list[tuple[Detector, list[Metrics], list[Metrics], Metrics]] = [
    # detector, steps that are still well, steps that are not, the numbers of these
    (
        *(reward_collapse, flat(10, 0.9) + flat(5, 0.61), flat(10, 0.9) + flat(5, 0.59)),
        {"reward": 0.59, "best": 0.9, "standard_error": 0.0370521},
    ),
    (  # five standard errors of few trials
        reward_collapse,
        flat(10, 0.9, total_episodes=16) + flat(5, 0.59, total_episodes=16),
        flat(10, 0.9, total_episodes=32, unscored_episodes=12)
        + flat(5, 0.59, total_episodes=32, unscored_episodes=12),
        {"reward": 0.59, "best": 0.9, "standard_error": 0.0569190},
    ),
    (  # the best of the last 30 steps before these
        *(reward_collapse, flat(5, 0.9) + flat(31, 0.58), flat(5, 0.9) + flat(30, 0.58)),
        {"reward": 0.58, "best": 0.9, "standard_error": 0.0245429},
    ),
    (
        *(reward_collapse, flat(4, 0.9) + flat(5, 0.5), flat(5, 0.9) + flat(5, 0.5)),
        {"reward": 0.5, "best": 0.9, "standard_error": 0.0596285},
    ),
    (
        *(reward_collapse, turning(*[2.0] * 10, *[2.99] * 5), turning(*[2.0] * 10, *[3.0] * 5)),
        {"turns": 3.0, "fewest": 2.0, "reward": 0.6, "reward_then": 0.6},
    ),
    (  # five standard errors of turns that differ
        reward_collapse,
        turning(*[2.0] * 10, 2.65, 3.75, 2.65, 3.75, 3.2),
        turning(*[2.0] * 10, 2.7, 3.7, 2.7, 3.7, 3.2),
        {"turns": 3.2, "fewest": 2.0, "reward": 0.6, "reward_then": 0.6},
    ),
    (  # a reward that rises by more than its error
        reward_collapse,
        flat(10, 0.4, total_episodes=16) + flat(5, 0.5, 3.0, total_episodes=16),
        flat(10, 0.4, total_episodes=8) + flat(5, 0.5, 3.0, total_episodes=8),
        {"turns": 3.0, "fewest": 2.0, "reward": 0.5, "reward_then": 0.4},
    ),
    (logprob_collapse, sampled(*[UP_TO] * 3), sampled(*[0.003] * 3), {"surprise": 0.003}),
    (logprob_collapse, sampled(*[0.003] * 2), sampled(*[0.003] * 3), {"limit": UP_TO}),
    (
        *(logprob_collapse, sampled(*[0.1] * 3, *[0.59] * 3), sampled(*[0.1] * 3, *[0.61] * 3)),
        {"surprise": 0.61, "usual": 0.1},
    ),
    (
        *(logprob_collapse, sampled(*[0.5] * 3, *[1.49] * 3), sampled(*[0.5] * 3, *[1.51] * 3)),
        {"surprise": 1.51, "usual": 0.5},
    ),
    (
        *(logprob_collapse, sampled(*[0.1] * 2, *[9.0] * 3), sampled(*[0.1] * 3, *[9.0] * 3)),
        {"surprise": 9.0, "usual": 0.1},
    ),
    (
        *(sampler_mismatch, differing(MISMATCH_KL), differing(MISMATCH_KL * 1.01)),
        {"kl": MISMATCH_KL * 1.01, "limit": MISMATCH_KL, "gap": 0.0, "staleness": 0.0},
    ),
    (
        sampler_mismatch,
        differing(MISMATCH_KL_STALE, 7.0, 2.0),
        differing(MISMATCH_KL_STALE * 1.01, 7.0, 2.0),
        {"limit": MISMATCH_KL_STALE, "gap": 7.0, "staleness": 2.0},
    ),
    (sampler_mismatch, differing(0.0, 5.0), differing(0.0, 5.01), {"kl": 0.0, "gap": 5.01}),
    (
        no_signal,
        flat(5, 0.5, **{"by_group/frac_constant": 0.6, "by_group/frac_short": 0.39}),
        flat(5, 0.5, **{"by_group/frac_constant": 0.6, "by_group/frac_short": 0.4}),
        {"steps": 5.0, "reward": 0.5},
    ),
    (
        *(reward_hacking, flat(5, 0.4, 6.0) + flat(3, 0.64, 4.0)),
        flat(5, 0.4, 6.0) + flat(3, 0.66, 4.0),
        {"reward": 0.66, "reward_before": 0.4, "turns": 4.0, "turns_before": 6.0},
    ),
    (
        *(reward_hacking, flat(5, 0.4, 6.0) + flat(3, 0.7, 4.3)),
        flat(5, 0.4, 6.0) + flat(3, 0.7, 4.1),
        {"turns": 4.1},
    ),
    (
        *(reward_hacking, flat(4, 0.4, 6.0) + flat(3, 0.7, 4.0)),
        flat(5, 0.4, 6.0) + flat(3, 0.7, 4.0),
        {"turns": 4.0},
    ),
    (
        reward_hacking,
        flat(5, 0.4, 6.0, total_episodes=32) + flat(3, 0.7, 4.0, total_episodes=32),
        flat(5, 0.4, 6.0, total_episodes=40) + flat(3, 0.7, 4.0, total_episodes=40),
        {"reward": 0.7},
    ),
    (truncated, cut(3, 3, 0, 0.0), cut(4, 1, 1, 0.0), {"trials": 4.0, "output_truncated": 1.0}),
    (truncated, cut(8, 2, 1, 0.49), cut(8, 2, 2, 0.49), {"context_overflow": 2.0}),
    (truncated, cut(8, 0, 0, 0.49), cut(8, 0, 0, 0.5), {"answers": 0.5}),
]


@pytest.mark.parametrize(("detector", "well", "not_well", "numbers"), LIMITS)
def test_each_limit_is_where_it_is_said_to_be(
    detector: Detector, well: list[Metrics], not_well: list[Metrics], numbers: Metrics
) -> None:
    def found(steps: list[Metrics]) -> Finding | None:
        return detector([Step(number, metrics) for number, metrics in enumerate(steps, 1)])

    assert found(well) is None
    finding = found(not_well)
    assert finding is not None
    assert {name: finding.numbers[name] for name in numbers} == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize(
    ("reward", "words"), [(0.9, "harder"), (0.89, "alike"), (0.11, "alike"), (0.1, "easier")]
)
def test_why_nothing_is_taught(reward: float, words: str) -> None:
    idle = flat(5, reward, **{"by_group/frac_mixed": 0.0})
    finding = no_signal([Step(number, metrics) for number, metrics in enumerate(idle)])
    assert finding is not None
    assert words in finding.text


def test_below_base_is_a_pooled_test_with_a_success_and_a_failure_more() -> None:
    first = HeldOutResult(0, 24, 48)
    assert below_base(first, HeldOutResult(10, 13, 48)) is None
    finding = below_base(first, HeldOutResult(10, 12, 48))
    assert finding is not None
    # (.50 - .26) / sqrt(.38 * .62 * 2 / 50)
    expected = {"pass_rate": 0.25, "base": 0.5, "z": 2.472261}
    assert finding.numbers == pytest.approx(expected, rel=1e-5)


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
