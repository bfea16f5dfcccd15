"""One optimiser step: groups of finished trials in, trained weights and numbers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tbtui.algorithm.advantages import GroupAdvantages, centred
from tbtui.algorithm.batch import ScoredTrial, build_data
from tbtui.algorithm.metrics import sampler_trainer_metrics
from tbtui.algorithm.segments import Segment, merge
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.events import GroupScored, TrialScore
from tbtui.policies.base import Policy, TrainSettings


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group of G rollouts with their segments and advantages, in the same order."""

    rollouts: tuple[Rollout, ...]
    segments: tuple[tuple[Segment, ...], ...]
    result: GroupAdvantages

    def event(self, step: int) -> GroupScored:
        plan = self.rollouts[0].plan
        return GroupScored(
            step=step,
            group=plan.group,
            task=plan.task.name,
            disposition=self.result.disposition,
            baseline=self.result.baseline,
            trials={
                rollout.trial: TrialScore(
                    reward=rollout.reward,
                    advantage=advantage,
                    tokens=sum(segment.action_tokens for segment in segments),
                )
                for rollout, segments, advantage in zip(
                    self.rollouts, self.segments, self.result.advantages, strict=True
                )
            },
        )

    def trainable(self) -> list[ScoredTrial]:
        return [
            ScoredTrial(segments, advantage)
            for segments, advantage in zip(self.segments, self.result.advantages, strict=True)
            if advantage is not None
        ]


def score_group(rollouts: Sequence[Rollout], min_group: int) -> ScoredGroup:
    """Advantages of one group; a trial without a reward has no part in it."""
    return ScoredGroup(
        tuple(rollouts),
        tuple(tuple(merge(rollout.calls)) for rollout in rollouts),
        centred([rollout.reward for rollout in rollouts], min_group),
    )


async def train(
    groups: Sequence[ScoredGroup], policy: Policy, settings: TrainSettings
) -> dict[str, float]:
    """Take one optimiser step on what the groups have to teach; returns its metrics.

    Without any learning signal (every group constant or short) no step is taken.
    """
    data = build_data([trial for group in groups for trial in group.trainable()])
    metrics = batch_metrics(groups)
    metrics["optim/lr"] = settings.learning_rate
    metrics["tokens/trained"] = float(sum(int(datum.mask.sum()) for datum in data))
    metrics["tokens/in_sequences"] = float(sum(len(datum.tokens) for datum in data))
    if data:
        result = await policy.train_step(data, settings)
        metrics |= sampler_trainer_metrics(data, result.logprobs)
        metrics["optim/loss"] = result.loss
        metrics["optim/grad_norm"] = result.grad_norm
        metrics["optim/entropy"] = result.entropy
        metrics |= {f"optim/{name}": value for name, value in result.metrics.items()}
    return metrics


def batch_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Rewards, outcomes and lengths, under the names that tinker-cookbook made customary."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    dispositions = Counter(group.result.disposition for group in groups)
    metrics = {
        "env/all/total_episodes": float(len(rollouts)),
        "env/all/unscored_episodes": float(len(rollouts) - len(rewards)),
        "env/all/turns_per_episode": _mean([float(rollout.turns) for rollout in rollouts]),
        "env/all/by_group/frac_constant": dispositions["constant"] / max(1, len(groups)),
        "env/all/by_group/frac_short": dispositions["short"] / max(1, len(groups)),
        "time/trial_mean": _mean([rollout.seconds for rollout in rollouts]),
    }
    if rewards:
        metrics["env/all/reward/total"] = _mean(rewards)
    for outcome, count in Counter(rollout.outcome for rollout in rollouts).items():
        metrics[f"env/all/outcome/{outcome}"] = float(count)
    return metrics


def waited_for(groups: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """Where the trial that the step waited for longest spent its time, in seconds by phase.

    A step's sampling is over when its last trial is: `time/wait/*` is that trial's breakdown,
    earlier attempts and time in the queue included. `time/trials/*` is the sum over all trials.
    """
    spent = [rollout.spent.model_dump() for group in groups for rollout in group]
    longest = max(spent, key=lambda phases: sum(phases.values()))
    return {f"time/wait/{phase}": seconds for phase, seconds in longest.items()} | {
        f"time/trials/{phase}": sum(phases[phase] for phases in spent) for phase in longest
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
