"""Rules about what the optimiser gets: signal, the sampler's and the trainer's figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import fmean, median

from tbtui.findings import (
    COLLAPSED_NEGATIVE_LOGPROB,
    MISMATCH_KL,
    MISMATCH_KL_STALE,
    Finding,
    Remedy,
    Rule,
)
from tbtui.outcomes import Outcome
from tbtui.outcomes import advice as advice_on
from tbtui.sampling import certainty, for_alike, for_failing
from tbtui.view.diagnosis.snapshot import RunSnapshot, share_of

_WINDOW = 5
"""Steps over which groups are counted: one step has few."""
_EQUAL = 0.5
"""Share of the groups without signal from which on half of the sampling is for nothing."""
_FAR = 0.5
"""Nats per token from the starting policy: some steps of PPO's usual .01 to .05 each make it.
Chosen, not measured."""
_CLIPPING = ("ppo", "cispo", "gspo")
_CLIP_HIGH = 0.28
"""DAPO's."""
_WORTH_A_WORD = 0.1
"""Share of the groups below which nothing is advised on them."""
_GROUPS = "env/all/by_group/frac_"


def no_signal_groups(run: RunSnapshot) -> Iterator[Finding]:
    """Groups whose rewards are all equal: no advantage, no gradient."""
    trend = run.trend(f"{_GROUPS}constant")
    if not trend:
        return
    recent = trend[-_WINDOW:]
    share = share_of(fmean(recent), 1)
    if share < _EQUAL:
        return
    failing, solved = (_recent(run, f"{_GROUPS}{each}") for each in ("all_bad", "all_good"))
    cause = _common_cause(run) if failing >= share / 2 else None
    if cause is not None:
        advice = f"mostly all ending by {cause.replace('_', ' ')}: {advice_on(cause)}"
    else:
        advice = _by_kind(run, failing, solved)
    yield Finding(
        Rule.NO_SIGNAL_GROUPS,
        f"{share:.0%} of the groups of {len(recent)} step{'s' * (len(recent) != 1)}",
        "costs" if share < 1 else "blocks",
        share=share,
        limit=f"{_EQUAL:.0%} of the groups",
        advice=advice,
        trend=tuple(share_of(each, 1) for each in trend),
        trials=tuple(each.trial for each in run.members if each.constant),
        remedy=None if cause is not None else _larger_groups(run),
    )


def _recent(run: RunSnapshot, name: str) -> float:
    """The mean of a share over the latest steps that have it; 0: none has."""
    recent = run.trend(name)[-_WINDOW:]
    return share_of(fmean(recent), 1) if recent else 0.0


def _by_kind(run: RunSnapshot, failing: float, solved: float) -> str:
    """What to do about groups that fail as a whole, and about those that pass as a whole."""
    kinds = {
        f"{failing:.0%} all failing: {for_failing(run.sampling_facts)}": failing,
        f"{solved:.0%} all solved: harder tasks": solved,
    }
    advice = "; ".join(text for text, share in kinds.items() if share >= _WORTH_A_WORD)
    return advice or for_alike(run.sampling_facts)


def _common_cause(run: RunSnapshot) -> Outcome | None:
    """How at least half of the trials without signal end, if there is something to do about it:
    easier tasks or larger groups would end in the same way."""
    outcomes = Counter(trial.outcome for trial in run.members if trial.constant)
    for outcome, count in outcomes.most_common(1):
        if outcome is not None and advice_on(outcome) and 2 * count >= outcomes.total():
            return outcome
    return None


def _larger_groups(run: RunSnapshot) -> Remedy | None:
    """A group twice as large, with the chance that its rewards are all equal; None: by what was
    measured it would be as likely."""
    size = round(run.number("group_size", 8))
    if not run.rates or size < 2:
        return None
    now, then = equal_share(run.rates, size), equal_share(run.rates, 2 * size)
    if now - then < _WORTH_A_WORD:
        return None
    trials = sum(scored for _, scored in run.rates)
    return Remedy(
        "group_size",
        2 * size,
        f"by the tasks' pass rates in {trials} trials {then:.0%} of groups of {2 * size} have no"
        f" signal, {now:.0%} of {size}",
    )


def equal_share(rates: tuple[tuple[float, int], ...], size: int) -> float:
    """Expected share of groups of `size` whose trials all pass or all fail, at the pass rates that
    were measured: nothing is assumed of a task that has never passed, or always.

    `rates` holds summed rewards and scored trials by task.
    """
    shares = []
    for rewards, scored in rates:
        passing = share_of(rewards, scored)
        shares.append(passing**size + (1 - passing) ** size)
    return share_of(fmean(shares), 1) if shares else 0.0


def sampler_gap(run: RunSnapshot) -> Iterator[Finding]:
    """Sampler and trainer give the same tokens different probabilities."""
    name = "optim/kl_sample_train_v2"
    trend = run.trend(name)
    # Before there was top_p, runs compared what was sampled from with the model.
    alike = run.sampling_facts.temperature == 1 or "top_p" in run.settings
    if not trend or not alike:
        return
    last = next(step for step in reversed(run.steps) if step.has(name))
    stale = last.metric("async/staleness_max")
    remedy: Remedy | None = None
    advice = ""
    limit = MISMATCH_KL_STALE if stale else MISMATCH_KL
    if trend[-1] <= limit:
        return
    ahead = round(run.number("max_steps_off_policy", 0))
    if stale and ahead:
        remedy = Remedy(
            "max_steps_off_policy",
            ahead - 1,
            f"weights at most {ahead - 1} steps old, now up to {stale:.0f}",
        )
        advice = "sample less far ahead"
    elif not run.number("importance_cap", 0) > 0:
        remedy = Remedy(
            "importance_cap",
            2,
            "a token weighs at most twice: large ratios no longer decide a step",
        )
    yield Finding(
        Rule.SAMPLER_TRAINER_GAP,
        f"{trend[-1]:.3g} nats a token",
        share=share_of(trend[-1], 10 * limit),
        limit=f"{limit:g} nats a token" + (", as the sampler's weights are older" if stale else ""),
        advice=advice,
        trend=trend,
        remedy=remedy,
    )


def entropy_collapse(run: RunSnapshot) -> Iterator[Finding]:
    """The policy is certain of every token: nothing is explored any more."""
    name, called = certainty(run.sampling_facts)
    trend = run.trend(name)
    if len(trend) < 3:
        return
    now = median(trend[-3:])
    if now >= COLLAPSED_NEGATIVE_LOGPROB:
        return
    yield Finding(
        Rule.ENTROPY_COLLAPSE,
        f"{called} {now:.4f} nats a token",
        share=share_of(COLLAPSED_NEGATIVE_LOGPROB - now, COLLAPSED_NEGATIVE_LOGPROB),
        limit=f"{COLLAPSED_NEGATIVE_LOGPROB:g} nats a token",
        trend=trend,
        remedy=_clip_higher(run) or _slower(run),
    )


def _clip_higher(run: RunSnapshot) -> Remedy | None:
    """A higher upper clip bound, where tokens are clipped by a lower one: DAPO's "Clip-Higher"
    (Yu et al. 2025, section 3.1)."""
    clipped = run.steps[-1].metric("optim/clip_fraction") if run.steps else 0.0
    bound = run.number("clip_high", _CLIP_HIGH)
    if run.settings.get("loss_fn") not in _CLIPPING or not clipped > 0 or bound >= _CLIP_HIGH:
        return None
    return Remedy(
        "clip_high",
        _CLIP_HIGH,
        f"unlikely tokens may become likelier by a ratio of {1 + _CLIP_HIGH:g}, not {1 + bound:g}",
    )


def far_from_start(run: RunSnapshot) -> Iterator[Finding]:
    """The policy has left the one that it started from."""
    trend = run.trend("optim/kl_policy_base")
    if not trend or trend[-1] <= _FAR:
        return
    penalty = run.number("kl_penalty_coef", 0)
    yield Finding(
        Rule.FAR_FROM_START,
        f"{trend[-1]:.2f} nats a token from the starting policy",
        "watch",
        share=share_of(trend[-1], 10 * _FAR),
        limit=f"{_FAR:g} nats a token",
        trend=trend,
        remedy=Remedy(
            "kl_penalty_coef",
            2 * penalty if penalty > 0 else 0.01,
            f"costs {(2 * penalty or 0.01) * trend[-1]:.3f} of reward at this distance",
        ),
    )


def raised_alarms(run: RunSnapshot) -> Iterator[Finding]:
    """Alarms of the latest steps."""
    for alarm in {each.alarm: each for each in run.alarms}.values():
        rule = alarm.alarm
        if not rule.why:
            continue
        hacking = rule in (Rule.REWARD_HACKING, Rule.HONEYPOT)
        review = Remedy("review", "suspects", "suspect trials wait for a decision before training")
        name = "env/all/turns_per_episode" if hacking else "env/all/reward/total"
        yield Finding(
            rule,
            alarm.text,
            limit="an alarm",
            trend=run.trend(name),
            trials=(alarm.trial,) if alarm.trial else (),
            remedy=review if hacking else _slower(run),
        )


def _slower(run: RunSnapshot) -> Remedy:
    rate = run.number("learning_rate", 2e-4)
    return Remedy("learning_rate", rate / 2, f"half the size of a step, {rate:g} so far")
