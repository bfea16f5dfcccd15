"""Rules about what the optimiser gets: signal, the sampler's and the trainer's figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import fmean, median

from tbtui.outcomes import ADVICE, Outcome
from tbtui.view.diagnosis.finding import Finding, Remedy, share_of
from tbtui.view.diagnosis.snapshot import Snapshot
from tbtui.vocabulary import COLLAPSED_NEGATIVE_LOGPROB, MISMATCH_KL, MISMATCH_KL_STALE, AlarmName

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
_GROUPS = "env/all/by_group/frac_"


def no_signal_groups(run: Snapshot) -> Iterator[Finding]:
    """Groups whose rewards are all equal: no advantage, no gradient."""
    trend = run.trend(f"{_GROUPS}constant")
    if not trend:
        return
    recent = trend[-_WINDOW:]
    share = share_of(fmean(recent), 1)
    if share < _EQUAL:
        return
    bad = fmean(run.trend(f"{_GROUPS}all_bad")[-_WINDOW:])
    all_failing = bad >= share / 2
    cause = _common_cause(run) if all_failing else None
    which = "mostly all failing: easier tasks" if all_failing else "mostly all solved: harder tasks"
    advice = f"{which}, or larger groups"
    if cause is not None:
        advice = f"mostly all ending by {cause.replace('_', ' ')}: {ADVICE[cause]}"
    yield Finding(
        "no_signal_groups",
        "costs" if share < 1 else "blocks",
        share,
        f"{share:.0%} of the groups of {len(recent)} step{'s' * (len(recent) != 1)}",
        f"{_EQUAL:.0%} of the groups",
        "equal rewards have no advantage: what was sampled for them trains nothing",
        advice,
        tuple(share_of(each, 1) for each in trend),
        tuple(each.trial for each in run.members if each.constant),
        None if cause is not None else _larger_groups(run),
    )


def _common_cause(run: Snapshot) -> Outcome | None:
    """How at least half of the trials without signal end, if there is something to do about it:
    easier tasks or larger groups would end in the same way."""
    outcomes = Counter(trial.outcome for trial in run.members if trial.constant)
    for outcome, count in outcomes.most_common(1):
        if outcome in ADVICE and 2 * count >= outcomes.total():
            return outcome
    return None


def _larger_groups(run: Snapshot) -> Remedy | None:
    """A group twice as large, with the chance that its rewards are all equal."""
    size = round(run.number("group_size", 8))
    if not run.rates or size < 2:
        return None
    now, then = equal_share(run.rates, size), equal_share(run.rates, 2 * size)
    return Remedy(
        "group_size",
        2 * size,
        f"by the tasks' pass rates {then:.0%} of groups of {2 * size} have no signal,"
        f" {now:.0%} of {size}",
    )


def equal_share(rates: tuple[tuple[float, int], ...], size: int) -> float:
    """Expected share of groups of `size` whose trials all pass or all fail.

    `rates` holds summed rewards and scored trials by task. One success and one failure are added to
    each, so that a task seen a few times is not taken for one that always passes or never.
    """
    shares = []
    for rewards, scored in rates:
        passing = share_of(rewards + 1, scored + 2)
        shares.append(passing**size + (1 - passing) ** size)
    return share_of(fmean(shares), 1) if shares else 0.0


def sampler_gap(run: Snapshot) -> Iterator[Finding]:
    """Sampler and trainer give the same tokens different probabilities."""
    trend = run.trend("optim/kl_sample_train_v2")
    if not run.steps or not trend:
        return
    last = run.steps[-1]
    stale = last.metric("async/staleness_max")
    remedy: Remedy | None = None
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
    else:
        capped = run.number("importance_cap", 0) > 0
        remedy = (
            None
            if capped
            else Remedy(
                "importance_cap",
                2,
                "a token weighs at most twice: large ratios no longer decide a step",
            )
        )
        advice = "compare chat template and dtype of both servers"
    yield Finding(
        "sampler_trainer_gap",
        "costs",
        share_of(trend[-1], 10 * limit),
        f"{trend[-1]:.3g} nats a token",
        f"{limit:g} nats a token" + (", as the sampler's weights are older" if stale else ""),
        "the loss is weighted by a ratio of probabilities that is wrong from the start",
        advice,
        trend,
        remedy=remedy,
    )


def entropy_collapse(run: Snapshot) -> Iterator[Finding]:
    """The policy is certain of every token: nothing is explored any more."""
    trend = run.trend("optim/surprise")
    if len(trend) < 3:
        return
    now = median(trend[-3:])
    if now >= COLLAPSED_NEGATIVE_LOGPROB:
        return
    yield Finding(
        "entropy_collapse",
        "costs",
        share_of(COLLAPSED_NEGATIVE_LOGPROB - now, COLLAPSED_NEGATIVE_LOGPROB),
        f"-log p {now:.4f} nats a token",
        f"{COLLAPSED_NEGATIVE_LOGPROB:g} nats a token",
        "where every token is certain all trials of a group are the same",
        "end the run, or lower the learning rate from an earlier checkpoint",
        trend,
        remedy=_clip_higher(run) or _slower(run),
    )


def _clip_higher(run: Snapshot) -> Remedy | None:
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


def far_from_start(run: Snapshot) -> Iterator[Finding]:
    """The policy has left the one that it started from."""
    trend = run.trend("optim/kl_policy_base")
    if not trend or trend[-1] <= _FAR:
        return
    penalty = run.number("kl_penalty_coef", 0)
    yield Finding(
        "far_from_start",
        "watch",
        share_of(trend[-1], 10 * _FAR),
        f"{trend[-1]:.2f} nats a token from the starting policy",
        f"{_FAR:g} nats a token",
        "what the starting policy knew besides these tasks goes first",
        "raise kl_penalty_coef",
        trend,
        remedy=Remedy(
            "kl_penalty_coef",
            2 * penalty if penalty > 0 else 0.01,
            f"costs {(2 * penalty or 0.01) * trend[-1]:.3f} of reward at this distance",
        ),
    )


_ALARMS: dict[AlarmName, tuple[str, str]] = {
    "reward_collapse": (
        "what was learned is being lost",
        "resume from an earlier checkpoint with a lower learning_rate",
    ),
    "below_base": (
        "training has made the policy worse at what it is for",
        "resume from an earlier checkpoint with a lower learning_rate",
    ),
    "reward_hacking": ("the verifier may pass what is not solved", "review what passes"),
    "honeypot": (
        "the policy has found a way around its verifiers, and may use it on every task",
        "look at the trial; then tbtui tasks audit, and fixed_programs=always",
    ),
}
"""Alarms that no other rule has the figures for: why each matters, what to do."""


def raised_alarms(run: Snapshot) -> Iterator[Finding]:
    """Alarms of the latest steps."""
    for alarm in {each.alarm: each for each in run.alarms}.values():
        if alarm.alarm not in _ALARMS:
            continue
        why, advice = _ALARMS[alarm.alarm]
        hacking = alarm.alarm in ("reward_hacking", "honeypot")
        review = Remedy("review", "suspects", "suspect trials wait for a decision before training")
        name = "env/all/turns_per_episode" if hacking else "env/all/reward/total"
        yield Finding(
            str(alarm.alarm),
            "costs",
            1.0,
            alarm.text,
            "an alarm",
            why,
            advice,
            run.trend(name),
            trials=(alarm.trial,) if alarm.trial else (),
            remedy=review if hacking else _slower(run),
        )


def _slower(run: Snapshot) -> Remedy:
    rate = run.number("learning_rate", 2e-4)
    return Remedy("learning_rate", rate / 2, f"half the size of a step, {rate:g} so far")
