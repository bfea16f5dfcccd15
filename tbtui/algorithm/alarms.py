"""When training looks wrong: step metrics and evaluations in, findings out. Pure.

Each detector looks at the latest steps and says what is wrong, or nothing. Limits and where they
come from stand beside them; "measured" is the embedded policy on the starter tasks: learning rates
from 4e-4 on made two runs in five collapse, three healthy runs of 40 steps raised nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, variance

from tbtui.findings import (
    COLLAPSED_NEGATIVE_LOGPROB,
    MISMATCH_KL,
    MISMATCH_KL_STALE,
    Finding,
    Rule,
)
from tbtui.sampling import (
    DEFAULT_SAMPLING,
    SamplingSettings,
    certainty,
    for_alike,
    for_cut_answers,
    for_failing,
    for_full_context,
)

HISTORY = 64
"""Steps that are remembered."""
REARM_STEPS = 10
"""Steps without the condition after which an alarm may be raised again."""

WINDOW = 5
"""Steps over which rewards and turns are averaged: a step of few tasks says little by itself."""
LOOK_BACK = 30
"""Steps before the window that it is compared with: "recent best", not "ever"."""
COLLAPSED = 2 / 3
"""Share of the recent best below which the mean reward has collapsed. Healthy runs, measured,
dip to .87 of it over five steps."""
NOISE = 5.0
"""Standard errors beyond which a difference of windows is no noise. So many because the best of
dozens of windows is compared, at every step: of 120 simulated runs of 300 steps without any change
(four groups of eight, tasks of very different difficulty) two raised it."""
RISING_TURNS = 1.5
"""Turns against their recent least, at a reward that does not rise: measured, the sign that comes
before the collapse (work as good as before, and no clean end to it); healthy runs stay below
1.06."""

SURPRISE_WINDOW = 3
EXPLODED = 3.0
"""Times its usual value, and by half a nat more, at which -log p has exploded (the runaway
entropy of Yu et al. 2025, DAPO, arXiv 2503.14476)."""
EXPLODED_BY = 0.5

_MISMATCH = ("optim/kl_sample_train_v2", "optim/max_logprob_gap")
MISMATCH_GAP = 5.0
"""Nats at one token with the same weights: a probability a hundred times off is no rounding.
Chosen, not measured: the embedded policy stays below 1e-4."""


NO_SIGNAL_STEPS = 5
"""Steps in a row without a group that teaches anything: the chance that a policy which still
learns on half of its steps draws them is 3%."""

BELOW_BASE = 2.33
"""One-sided 1%: a run has a handful of evaluations. Pooled, with one success and one failure
added to both (Agresti and Caffo 2000); pairing by task would only make it stricter."""

JUMP_WINDOW = 3
JUMP = 0.25
"""Rise of the mean reward within so few steps that is suspicious together with fewer turns."""
SHRUNK_TURNS = 0.7
"""Turns against before. Measured, honest learning from .3 to .9 leaves them within 10%."""


TRUNCATED = 0.5
"""Share of a step's trials, or of its answers, that are cut off at a limit of tokens: what such a
step teaches is to be brief. One step is enough, for each is paid for. Chosen, not measured."""
TRUNCATED_LEAST = 4
"""Trials that a step needs for that."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step's metrics."""

    step: int
    metrics: Mapping[str, float]
    sampling: SamplingSettings = DEFAULT_SAMPLING

    @property
    def reward(self) -> float:
        return self.metrics["env/all/reward/total"]

    @property
    def turns(self) -> float:
        return self.metrics["env/all/turns_per_episode"]

    @property
    def scored(self) -> float:
        """Episodes that have a reward."""
        unscored = self.metrics.get("env/all/unscored_episodes", 0.0)
        return max(1.0, self.metrics.get("env/all/total_episodes", 1.0) - unscored)

    @property
    def signal(self) -> bool:
        """Whether any group has a signal: rewards that differ."""
        name = "env/all/by_group/frac_"
        if (mixed := self.metrics.get(name + "mixed")) is not None:
            return mixed > 0
        idle = self.metrics.get(name + "constant", 0.0) + self.metrics.get(name + "short", 0.0)
        return idle < 1 - 1e-9


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """Held-out trials: `passed` of `scored` (a sum of rewards, so not always whole)."""

    step: int
    passed: float
    scored: int
    temperature: float = 1.0

    @property
    def rate(self) -> float:
        return self.passed / self.scored


Detector = Callable[[Sequence[Step]], Finding | None]


def reward_collapse(history: Sequence[Step]) -> Finding | None:
    """The mean reward is well below its recent best, or turns rise at a steady reward."""
    steps = [step for step in history if "env/all/reward/total" in step.metrics]
    recent, before = steps[-WINDOW:], steps[-WINDOW - LOOK_BACK : -WINDOW]
    windows = [before[i : i + WINDOW] for i in range(len(before) - WINDOW + 1)]
    if not windows:
        return None
    best = max(windows, key=_reward)
    was, now = _reward(best), _reward(recent)
    error = _standard_error([*before, *recent], WINDOW, WINDOW)
    if now <= COLLAPSED * was and was - now >= NOISE * error:
        return _found(
            Rule.REWARD_COLLAPSE,
            history,
            f"mean reward of the last {WINDOW} steps is {now:.2f}; it was {was:.2f}"
            f" up to step {best[-1].step}",
            {"reward": now, "best": was, "standard_error": error},
        )
    if any("env/all/turns_per_episode" not in step.metrics for step in [*before, *recent]):
        return None
    fewest = min(windows, key=_turns)
    few, many = _turns(fewest), _turns(recent)
    spread = math.sqrt(
        (variance(s.turns for s in fewest) + variance(s.turns for s in recent)) / WINDOW
    )
    if (
        many >= RISING_TURNS * few
        and many - few >= NOISE * spread
        and now <= _reward(fewest) + error
    ):
        return _found(
            Rule.REWARD_COLLAPSE,
            history,
            f"turns rose from {few:.1f} to {many:.1f} while the mean reward did not"
            f" ({_reward(fewest):.2f} -> {now:.2f}): often the start of a collapse",
            {"turns": many, "fewest": few, "reward": now, "reward_then": _reward(fewest)},
        )
    return None


def logprob_collapse(history: Sequence[Step]) -> Finding | None:
    """The mean log-probability has collapsed: the policy is certain of every token, or of none."""
    name, called = certainty(history[-1].sampling)
    values = [step.metrics[name] for step in history if name in step.metrics]
    if len(values) < SURPRISE_WINDOW:
        return None
    now = median(values[-SURPRISE_WINDOW:])  # one odd step is none
    if now < COLLAPSED_NEGATIVE_LOGPROB:
        return _found(
            Rule.LOGPROB_COLLAPSE,
            history,
            f"{called} is {now:.4f} nats a token: the policy hardly explores any more",
            {"surprise": now, "limit": COLLAPSED_NEGATIVE_LOGPROB},
        )
    before = values[:-SURPRISE_WINDOW]
    if len(before) < SURPRISE_WINDOW:
        return None
    usual = median(before)
    if now > EXPLODED * usual and now > usual + EXPLODED_BY:
        return _found(
            Rule.LOGPROB_COLLAPSE,
            history,
            f"{called} is {now:.2f} nats a token, usually {usual:.2f}: the policy falls apart",
            {"surprise": now, "usual": usual},
        )
    return None


def sampler_mismatch(history: Sequence[Step]) -> Finding | None:
    """Sampler and trainer disagree about the same tokens.

    Both log-probabilities are the model's own: what the settings ask for (temperature, left-out
    tokens) makes no difference between them.
    """
    known = [s.metrics for s in history if "optim/kl_sample_train_v2" in s.metrics]
    if not known:
        return None
    latest = known[-1]
    kl = latest["optim/kl_sample_train_v2"]
    stale = latest.get("async/staleness_max", 0.0)
    limit = MISMATCH_KL_STALE if stale else MISMATCH_KL
    gap = latest.get("optim/max_logprob_gap", 0.0)
    numbers = {"kl": kl, "limit": limit, "gap": gap, "staleness": stale}
    if not kl <= limit:  # NaN is a mismatch too
        text = f"sampler and trainer differ by {kl:.3g} nats a token, limit {limit:g}"
    elif not stale and not gap <= MISMATCH_GAP:
        text = f"sampler and trainer differ by {gap:.1f} nats at a token, limit {MISMATCH_GAP:g}"
    else:
        return None
    return _found(Rule.SAMPLER_MISMATCH, history, text, numbers)


def no_signal(history: Sequence[Step]) -> Finding | None:
    """No group of the last steps has a signal: all rewards of each group are equal."""
    recent = history[-NO_SIGNAL_STEPS:]
    if len(recent) < NO_SIGNAL_STEPS or any(step.signal for step in recent):
        return None
    idle = 0
    for step in reversed(history):
        if step.signal:
            break
        idle += 1
    rewards = [s.reward for s in recent if "env/all/reward/total" in s.metrics]
    mean = fmean(rewards) if rewards else math.nan
    sampling = history[-1].sampling
    why = (
        "no trial had a reward"
        if not rewards
        else "nearly every trial succeeds: harder tasks would teach more"
        if mean >= 0.9
        else f"hardly any trial succeeds: {for_failing(sampling)}"
        if mean <= 0.1
        else f"the trials of each group end alike (mean reward {mean:.2f}): {for_alike(sampling)}"
    )
    numbers = {"steps": float(idle)} | ({"reward": mean} if rewards else {})
    text = f"no group taught anything for {idle} steps; {why}"
    return _found(Rule.NO_SIGNAL, history, text, numbers)


def reward_hacking(history: Sequence[Step]) -> Finding | None:
    """The reward jumped while episodes became much shorter: look at what passes."""
    needed = ("env/all/reward/total", "env/all/turns_per_episode")
    steps = [step for step in history if all(name in step.metrics for name in needed)]
    recent, before = steps[-JUMP_WINDOW:], steps[-JUMP_WINDOW - WINDOW : -JUMP_WINDOW]
    if len(before) < WINDOW:
        return None
    was, now, few, many = _reward(before), _reward(recent), _turns(recent), _turns(before)
    usual = steps[-JUMP_WINDOW - LOOK_BACK : -JUMP_WINDOW]  # without the jump itself
    error = _standard_error(usual, len(before), len(recent))
    if now - was < JUMP or now - was < NOISE * error or few > SHRUNK_TURNS * many:
        return None
    return _found(
        Rule.REWARD_HACKING,
        history,
        f"reward jumped from {was:.2f} to {now:.2f} while turns fell from {many:.1f} to {few:.1f}:"
        " look at what passes the verifier",
        {"reward": now, "reward_before": was, "turns": few, "turns_before": many},
    )


def truncated(history: Sequence[Step]) -> Finding | None:
    """Most trials, or most answers, of the latest step ended at a limit of tokens."""
    metrics = history[-1].metrics
    trials = metrics.get("env/all/total_episodes", 0.0)
    ended = metrics.get("env/all/outcome/output_truncated", 0.0)
    full = metrics.get("env/all/outcome/context_overflow", 0.0)
    answers = metrics.get("env/all/frac_truncated_turns", 0.0)
    if trials < TRUNCATED_LEAST or max((ended + full) / trials, answers) < TRUNCATED:
        return None
    found = (
        f"{ended + full:.0f} of {trials:.0f} trials ended cut off, and {answers:.0%} of the answers"
    )
    why = (
        f"the context is full: {for_full_context(history[-1].sampling)};"
        " on_outcome.context_overflow=mask leaves such trials out of training"
        if full > ended and answers < TRUNCATED
        else f"answers don't fit into max_tokens: {for_cut_answers(history[-1].sampling)}"
    )
    numbers = {"trials": trials, "output_truncated": ended, "context_overflow": full}
    return _found(Rule.TRUNCATED, history, f"{found}; {why}", numbers | {"answers": answers})


def below_base(first: HeldOutResult, latest: HeldOutResult) -> Finding | None:
    """Held-out tasks are solved less often than before training."""
    n0, n1 = first.scored + 2, latest.scored + 2
    p0, p1 = (first.passed + 1) / n0, (latest.passed + 1) / n1
    pooled = (first.passed + latest.passed + 2) / (n0 + n1)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n0 + 1 / n1))
    if p0 - p1 < BELOW_BASE * error:
        return None
    text = (
        f"held-out pass rate {latest.rate:.2f} of {latest.scored} trials; it was"
        f" {first.rate:.2f} of {first.scored} after step {first.step}"
    )
    numbers = {"pass_rate": latest.rate, "base": first.rate, "z": (p0 - p1) / error}
    return Finding(Rule.BELOW_BASE, text, step=latest.step, numbers=numbers)


_STEP_DETECTORS: Mapping[Rule, Detector] = {
    Rule.REWARD_COLLAPSE: reward_collapse,
    Rule.LOGPROB_COLLAPSE: logprob_collapse,
    Rule.SAMPLER_MISMATCH: sampler_mismatch,
    Rule.NO_SIGNAL: no_signal,
    Rule.REWARD_HACKING: reward_hacking,
    Rule.TRUNCATED: truncated,
}


class AlarmDetector:
    """Takes a run's steps and evaluations in order and raises alarms, each once an episode.

    An alarm that was raised is raised again only after its condition has been gone for
    `REARM_STEPS` steps (`below_base`: for one evaluation). Feeding the same numbers again leads to
    the same state, which is how it is rebuilt for a resumed run.
    """

    def __init__(self, sampling: SamplingSettings = DEFAULT_SAMPLING) -> None:
        self._sampling = sampling
        self._history: deque[Step] = deque(maxlen=HISTORY)
        self._base: dict[float, HeldOutResult] = {}
        """The first evaluation, by temperature: others are not comparable."""
        self._clear: dict[Rule, int] = {}
        """Raised alarms that are not armed again -> steps since their condition went."""

    def step(self, step: int, metrics: Mapping[str, float]) -> list[Finding]:
        """The alarms that a finished step raises. A NaN counts in `sampler_mismatch` only."""
        kept = {n: v for n, v in metrics.items() if math.isfinite(v) or n in _MISMATCH}
        self._history.append(Step(step, kept, self._sampling))
        history = tuple(self._history)
        return [
            finding
            for rule, detect in _STEP_DETECTORS.items()
            if (finding := self._news(rule, detect(history), REARM_STEPS))
        ]

    def evaluation(self, evaluation: HeldOutResult) -> list[Finding]:
        """The alarms that an evaluation raises; none where it has no scored trial."""
        if not evaluation.scored:
            return []
        base = self._base.setdefault(evaluation.temperature, evaluation)
        finding = self._news(Rule.BELOW_BASE, below_base(base, evaluation), 1)
        return [finding] if finding else []

    def _news(self, rule: Rule, finding: Finding | None, rearm: int) -> Finding | None:
        """The finding, unless it was raised already and has not been gone for `rearm` steps."""
        if finding is None:
            if rule in self._clear:
                self._clear[rule] += 1
                if self._clear[rule] >= rearm:
                    del self._clear[rule]
            return None
        already = rule in self._clear
        self._clear[rule] = 0
        return None if already else finding


def _found(rule: Rule, history: Sequence[Step], text: str, numbers: Mapping[str, float]) -> Finding:
    return Finding(rule, text, step=history[-1].step, numbers=numbers)


def _reward(steps: Sequence[Step]) -> float:
    return fmean(step.reward for step in steps)


def _turns(steps: Sequence[Step]) -> float:
    return fmean(step.turns for step in steps)


def _standard_error(steps: Sequence[Step], one: int, other: int) -> float:
    """The standard error of the difference between the mean rewards of `one` and of `other`.

    From the differences of successive steps (von Neumann 1941), which have the draw of tasks in
    them and hardly any of what is learned or lost over many steps. Never less than what so many
    trials of a reward between 0 and 1 vary by themselves.
    """
    seen = fmean((later.reward - sooner.reward) ** 2 for sooner, later in pairwise(steps)) / 2
    mean = min(1.0, max(0.0, _reward(steps)))
    least = mean * (1 - mean) / fmean(step.scored for step in steps)
    return math.sqrt(max(seen, least) * (1 / one + 1 / other))
