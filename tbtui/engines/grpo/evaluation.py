"""What an evaluation says about the weights: pure, from its finished trials.

An evaluation never touches training state. It samples from the published weights and hands the
policy nothing to train on; its random draws come from streams of their own (`plan_groups` with
purpose `eval`), which are the same at every step, so that two evaluations of a run differ by
their weights alone; it takes no task from the training order; and a policy's draws depend on each
request's own seed, not on what else was sampled. The tests train with and without evaluations and
compare every reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tbtui.algorithm.evaluation import Attempts, attempts, pass_rate, pass_rates
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.events import Estimate, EvalFinished


def summarize(
    rollouts: Sequence[Rollout],
    step: int,
    weights_version: int,
    temperature: float,
    *,
    not_tried: int = 0,
) -> EvalFinished:
    """Pass rates over all tasks, by task, by kind of task, and by data set if there are several.

    To pass is a reward of 1. Each rate is a mean over tasks, so that a task some of whose trials
    could not be scored weighs no less than another; a task none of whose trials was scored is
    left out, and counted, together with the `not_tried` ones that can't be used at all.
    """
    by_task = {
        task: attempts(rewards)
        for task, rewards in _grouped((r.plan.task.name, r.reward) for r in rollouts).items()
    }
    kinds = {r.plan.task.name: r.plan.task.kind or r.plan.task.name for r in rollouts}
    by_kind = _grouped((kinds[task], tried) for task, tried in by_task.items())
    datasets = {r.plan.task.name: r.plan.task.dataset for r in rollouts}
    by_dataset = _grouped((datasets[task], tried) for task, tried in by_task.items())
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    rates = pass_rates(list(by_task.values()))
    return EvalFinished(
        step=step,
        weights_version=weights_version,
        temperature=temperature,
        pass_rate=rates[1].value if rates else None,
        scored=len(rewards),
        unscored=len(rollouts) - len(rewards),
        by_kind=_first_attempt(by_kind),
        by_dataset=_first_attempt(by_dataset) if len(by_dataset) > 1 else {},
        pass_at={
            k: Estimate(value=rate.value, low=rate.low, high=rate.high) for k, rate in rates.items()
        },
        by_task=_first_attempt({task: [tried] for task, tried in by_task.items()}),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        unscored_tasks=sum(not tried.scored for tried in by_task.values()) + not_tried,
    )


def _grouped[T](pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for name, member in pairs:
        groups.setdefault(name, []).append(member)
    return groups


def _first_attempt(parts: Mapping[str, Sequence[Attempts]]) -> dict[str, float]:
    """pass@1 of each part that has a scored trial, by name."""
    rates = {name: pass_rate(tasks, 1) for name, tasks in sorted(parts.items())}
    return {name: rate.value for name, rate in rates.items() if rate is not None}
