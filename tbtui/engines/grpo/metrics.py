"""Metrics of a step, of its optimiser steps, of an evaluation and of a run's cost.

Names are those that tinker-cookbook made customary.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tbtui.algorithm.advantages import GroupAdvantages
from tbtui.algorithm.costs import Costs, Spent, Tokens, outcome_metrics, turn_metrics
from tbtui.algorithm.losses import LossSettings, clipped_tokens
from tbtui.algorithm.step import Datum, Logprobs, ScoredGroup
from tbtui.config import BudgetUnit, RunConfig
from tbtui.engines.events_of import eval_finished
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.prices import price_list
from tbtui.journal.events import EvalFinished, Outcome
from tbtui.journal.figures import SAMPLING_SPEED
from tbtui.policies.base import Policy

# A step


def step_metrics(groups: Sequence[ScoredGroup[Rollout]], max_tokens: int) -> dict[str, float]:
    """Rewards, outcomes, lengths and times of a step's trials.

    `max_tokens`: that a completion may have.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    metrics = {
        "env/all/total_episodes": float(len(rollouts)),
        "env/all/unscored_episodes": float(len(rollouts) - len(rewards)),
        "time/trial_mean": _mean([rollout.seconds for rollout in rollouts]),
        **turn_metrics([rollout.turns for rollout in rollouts]),
        **outcome_metrics((rollout.outcome for rollout in rollouts), Outcome),
        **group_metrics([group.result for group in groups]),
        **_branches(groups),
    }
    if rollouts:
        useful = useful_groups(groups)
        metrics["env/all/useful_groups_per_100_rollouts"] = 100 * useful / len(rollouts)
    if rewards:
        metrics["env/all/reward/total"] = _mean(rewards)
        metrics["env/all/pass_rate"] = _mean([float(reward >= 1) for reward in rewards])
    return metrics | _waited_for(rollouts) | _truncated_turns(rollouts, max_tokens)


def step_times(sampling: float, training: float, reviewing: float) -> dict[str, float]:
    """Seconds of a step; `reviewing`: how many of those of `sampling` it waited for its review."""
    times = {
        "time/sampling": sampling - reviewing,
        "time/training": training,
        "time/total": sampling + training,
    }
    return times | ({"time/reviewing": reviewing} if reviewing else {})


def sampling_speed(tokens: Tokens, times: Mapping[str, float], *, ahead: bool) -> dict[str, float]:
    """Tokens that a step drew, by the time that it took.

    `ahead`: trials are sampled while earlier steps are trained, so that all of a step's time is
    theirs.
    """
    seconds = times["time/total" if ahead else "time/sampling"]
    return {SAMPLING_SPEED: tokens.sampled / seconds} if seconds > 0 else {}


def _truncated_turns(rollouts: Sequence[Rollout], max_tokens: int) -> dict[str, float]:
    """Share of the model calls that were cut off at `max_tokens`."""
    calls = [call for rollout in rollouts for call in rollout.calls]
    if not calls:
        return {}
    cut_off = sum(len(call.completion_ids) >= max_tokens for call in calls)
    return {"env/all/frac_truncated_turns": cut_off / len(calls)}


def _branches(groups: Sequence[ScoredGroup[Rollout]]) -> dict[str, float]:
    """What became of the prompts after a trial's first: the share that goes on from earlier tokens
    exactly, and the share whose agent had rewritten what the policy said; training sequences a
    trial.

    The others begin a sequence of their own as well: a sub-agent's, a compacted history, a retry.
    """
    trials = [segments for group in groups for segments in group.segments if segments]
    later = sum(segment.calls for segments in trials for segment in segments) - len(trials)
    if not later:
        return {}
    opened = sum(len(segments) - 1 for segments in trials)
    rewritten = sum(segment.rewritten for segments in trials for segment in segments)
    return {
        "env/all/prefix_extended": (later - opened) / later,
        "env/all/prefix_rewritten": rewritten / later,
        "env/all/branches": _mean([float(len(segments)) for segments in trials]),
    }


def useful_groups(groups: Sequence[ScoredGroup[Rollout]]) -> int:
    """How many groups have a signal: an advantage other than 0."""
    return sum(any(group.result.advantages) for group in groups)


def _waited_for(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Where the trial that the step waited for longest spent its time, in seconds by phase.

    A step's sampling is over when its last trial is: `time/wait/*` is that trial's breakdown,
    earlier attempts and time in the queue included. `time/trials/*` is the sum over all trials.
    """
    spent = [rollout.spent.by_phase() for rollout in rollouts]
    longest = max(spent, key=lambda phases: sum(phases.values()))
    return {f"time/wait/{phase}": seconds for phase, seconds in longest.items()} | {
        f"time/trials/{phase}": sum(phases[phase] for phases in spent) for phase in longest
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# An evaluation never touches training state. It samples from the published weights and hands the
# policy nothing to train on; its random draws come from streams of their own (`plan_groups` with
# purpose `eval`), which are the same at every step, so that two evaluations of a run differ by
# their weights alone; it takes no task from the training order; and a policy's draws depend on each
# request's own seed, not on what else was sampled. The tests train with and without evaluations and
# compare every reward.


def summarize(
    rollouts: Sequence[Rollout],
    step: int,
    weights_version: int,
    temperature: float,
    *,
    not_tried: int = 0,
) -> EvalFinished:
    """An evaluation as the journal has it; `not_tried`: tasks that can't be used at all."""
    tasks = {rollout.plan.task.name: rollout.plan.task for rollout in rollouts}
    return eval_finished(
        [(rollout.plan.task.name, rollout.reward) for rollout in rollouts],
        kinds={name: task.kind or name for name, task in tasks.items()},
        datasets={name: task.dataset for name, task in tasks.items()},
        step=step,
        weights_version=weights_version,
        temperature=temperature,
        not_tried=not_tried,
        verdicts=[(rollout.plan.task.name, _verdict(rollout)) for rollout in rollouts],
    )


def _verdict(rollout: Rollout) -> float | None:
    """A scored trial's verdict, whatever of it counted; its reward, where there is none."""
    unheard = rollout.reward is None or rollout.verdict is None
    return rollout.reward if unheard else rollout.verdict


# Cost


class Spending:
    """Counts tokens and storage of one process of a run, from what was spent before it on."""

    def __init__(self, config: RunConfig, spent: Spent, policy: Policy) -> None:
        self._costs = Costs(spent, price_list(config).prices)
        self._policy = policy
        self.begin()

    def begin(self) -> None:
        """Count time from now on."""
        self._stored_since = self._counted_until = time.monotonic()

    @property
    def usd(self) -> float:
        return self._costs.spent.usd

    def by_unit(self) -> dict[BudgetUnit, float]:
        """What the run has spent so far, in all that a budget may count."""
        self._count_time()
        spent = self._costs.spent
        return {
            "dollars": spent.usd,
            "hours": spent.hours,
            "rollouts": float(spent.rollouts),
            "tokens": float(spent.tokens.total),
        }

    def add(self, tokens: Tokens) -> None:
        """Count what belongs to the totals alone."""
        self._costs.add(tokens)

    def step(self, tokens: Tokens, useful_groups: int, rollouts: int) -> dict[str, float]:
        """The metrics of a step that consumed `tokens`, and of the run with it."""
        self._count_storage()
        self._count_time()
        return self._costs.step(tokens, useful_groups, rollouts)

    def evaluation(self, tokens: Tokens) -> dict[str, float]:
        """The metrics of an evaluation that consumed `tokens`, and of the run with it."""
        self._count_storage()
        self._count_time()
        return self._costs.evaluation(tokens)

    def _count_time(self) -> None:
        now = time.monotonic()
        self._costs.lived((now - self._counted_until) / 3600)
        self._counted_until = now

    def _count_storage(self) -> None:
        """Count what the server has stored for us since the last call."""
        if not self._costs.counts_storage:
            return
        now, stored = time.monotonic(), self._policy.status().stored_bytes
        if stored is not None:
            self._costs.stored(stored, now - self._stored_since)
        self._stored_since = now


# The data of an optimiser step: empty without any. A step whose gradient was accumulated in parts
# hands in the data of all of them.

SOLVED_REWARD = 0.5
"""A constant group counts as all good from this reward on."""


def sampler_trainer_metrics(data: Sequence[Datum], trained: Logprobs) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's, before the step.

    `trained[i]` holds datum i's log-probabilities at its masked positions. `kl_sample_train_v1`
    and `_v2` are the estimators k1 and k2 of Schulman's note "Approximating KL Divergence"
    (2020): the mean of sampled minus trained, and of half its square; both are the model's own
    log-probabilities, so that a temperature and left-out tokens make no gap. `neg_logprob` is the
    mean negative log-probability of what was sampled. All in nats per token. Where the sampler
    doesn't give the model's log-probability (NaN), there is no gap to measure.
    """
    if not data:
        return {}
    sampled = np.concatenate([datum.logprobs[datum.mask] for datum in data]).astype(np.float64)
    now = np.concatenate(trained).astype(np.float64)
    known = ~np.isnan(sampled)
    figures = {"optim/neg_logprob": float(-np.where(known, sampled, now).mean())}
    if not known.any():
        return figures
    gap = sampled[known] - now[known]
    return {
        "optim/kl_sample_train_v1": float(gap.mean()),
        "optim/kl_sample_train_v2": float((gap**2).mean() / 2),
        "optim/max_logprob_gap": float(np.abs(gap).max()),
        **figures,
    }


def clip_metrics(
    data: Sequence[Datum], trained: Logprobs, settings: LossSettings
) -> dict[str, float]:
    """The share of trained tokens whose gradient the loss's clipping changed.

    `trained` as for `sampler_trainer_metrics`; the data are the ones that the loss was given.
    """
    if not data:
        return {}
    clipped = np.concatenate(
        [
            clipped_tokens(now, datum.logprobs[datum.mask], datum.advantages[datum.mask], settings)
            for datum, now in zip(data, trained, strict=True)
        ]
    )
    return {"optim/clip_fraction": float(clipped.mean())}


def staleness_metrics(ages: Iterable[tuple[int, int]]) -> dict[str, float]:
    """How many steps the trained weights are ahead of those that drew the tokens.

    `ages`: for each call, its age in steps and its number of completion tokens. The mean is over
    tokens, of which a trial may have several ages.
    """
    drawn = [(age, tokens) for age, tokens in ages if tokens]
    if not drawn:
        return {}
    return {
        "async/staleness_mean": sum(age * tokens for age, tokens in drawn)
        / sum(tokens for _, tokens in drawn),
        "async/staleness_max": float(max(age for age, _ in drawn)),
        "async/staleness_min": float(min(age for age, _ in drawn)),
    }


def group_metrics(results: Sequence[GroupAdvantages]) -> dict[str, float]:
    """Shares of the batch's groups: with something to learn, all good, all bad, constant (either
    of the two), and short of scored trials."""
    if not results:
        return {}
    constant = [result.baseline or 0.0 for result in results if result.disposition == "constant"]
    good = sum(reward >= SOLVED_REWARD for reward in constant)
    counts = {
        "mixed": sum(result.disposition == "trained" for result in results),
        "all_good": good,
        "all_bad": len(constant) - good,
        "constant": len(constant),
        "short": sum(result.disposition == "short" for result in results),
    }
    return {f"env/all/by_group/frac_{name}": count / len(results) for name, count in counts.items()}
