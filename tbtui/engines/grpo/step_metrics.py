"""What happened in a step, in numbers, under the names that tinker-cookbook made customary."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.algorithm.costs import outcome_metrics, turn_metrics
from tbtui.algorithm.metrics import group_metrics
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.grpo.scoring import ScoredGroup
from tbtui.journal.events import Outcome


def batch_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Rewards, outcomes and lengths."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    metrics = {
        "env/all/total_episodes": float(len(rollouts)),
        "env/all/unscored_episodes": float(len(rollouts) - len(rewards)),
        "time/trial_mean": _mean([rollout.seconds for rollout in rollouts]),
        **turn_metrics([rollout.turns for rollout in rollouts]),
        **outcome_metrics((rollout.outcome for rollout in rollouts), Outcome),
        **group_metrics([group.result for group in groups]),
        **_prefix_extended(groups),
    }
    if rewards:
        metrics["env/all/reward/total"] = _mean(rewards)
        metrics["env/all/pass_rate"] = _mean([float(reward >= 1) for reward in rewards])
    return metrics


def truncated_turns(groups: Sequence[ScoredGroup], max_tokens: int) -> dict[str, float]:
    """Share of the model calls that were cut off at `max_tokens`."""
    calls = [call for group in groups for rollout in group.rollouts for call in rollout.calls]
    if not calls:
        return {}
    cut_off = sum(len(call.completion_ids) >= max_tokens for call in calls)
    return {"env/all/frac_truncated_turns": cut_off / len(calls)}


def _prefix_extended(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Share of the prompts after a trial's first that go on from its earlier tokens exactly.

    Each of the others opened a training sequence of its own: its history had been rewritten.
    """
    later = extended = 0
    for group in groups:
        for rollout, segments in zip(group.rollouts, group.segments, strict=True):
            if rollout.calls:
                later += len(rollout.calls) - 1
                extended += len(rollout.calls) - len(segments)
    return {"env/all/prefix_extended": extended / later} if later else {}


def useful_groups(groups: Sequence[ScoredGroup]) -> int:
    """How many had something to teach."""
    return sum(any(group.result.advantages) for group in groups)


def waited_for(groups: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """Where the trial that the step waited for longest spent its time, in seconds by phase.

    A step's sampling is over when its last trial is: `time/wait/*` is that trial's breakdown,
    earlier attempts and time in the queue included. `time/trials/*` is the sum over all trials.
    """
    spent = [rollout.spent.by_phase() for group in groups for rollout in group]
    longest = max(spent, key=lambda phases: sum(phases.values()))
    return {f"time/wait/{phase}": seconds for phase, seconds in longest.items()} | {
        f"time/trials/{phase}": sum(phases[phase] for phases in spent) for phase in longest
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
