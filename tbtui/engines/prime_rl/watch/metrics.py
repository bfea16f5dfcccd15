"""Rows of Prime-RL's `metrics.jsonl`: of 468 numbers a step, those that tell how it goes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ORCHESTRATOR_MARK = "progress/rollouts"
"""In the orchestrator's row of a step, which comes when the batch is handed to the trainer."""
TRAINER_MARK = "time/forward_backward"
"""In the trainer's last rows of a step, which come when the weights are new."""

_TRAINER = {
    "loss/mean": "optim/loss",
    "entropy/all/mean": "optim/entropy",
    # Prime-RL's estimate is r - 1 - log r, ours half the squared gap: the same to second order.
    "mismatch_kl/all/mean": "optim/kl_sample_train_v2",
    "is_masked/mean": "optim/clip_fraction",
    "optim/grad_norm": "optim/grad_norm",
    "optim/lr": "optim/lr",
    "perf/throughput": "perf/tokens_per_sec",
    "perf/mfu": "perf/mfu_percent",
    "time/forward_backward": "time/training",
    "time/wait_for_batch": "time/sampling",
    "time/broadcast_weights": "time/weight_update",
}
_ORCHESTRATOR = {
    "progress/rollouts": "env/all/total_episodes",
    "progress/input_tokens": "tokens/prompt",
    "progress/output_tokens": "tokens/sampled",
    "off_policy/mean": "async/staleness_mean",
    "off_policy/max": "async/staleness_max",
    "off_policy/dropped": "async/dropped_as_stale",
    "time/wait_for_policy": "time/waiting_for_trainer",
}
_OF_AGENT = {
    "reward/mean": "env/all/reward/total",
    "is_truncated/mean": "env/all/truncated",
    "num_turns/mean": "env/all/turns_per_episode",
    "num_output_tokens/mean": "env/all/ac_tokens_per_episode",
}
_GROUPS = {
    "solved_all": "env/all/by_group/frac_all_good",
    "solved_none": "env/all/by_group/frac_all_bad",
    "solved_some": "env/all/by_group/frac_mixed",
}


def step_of(row: Mapping[str, Any]) -> int | None:
    """Evaluations have theirs as a float."""
    step = row.get("step")
    if isinstance(step, float) and step.is_integer():
        return int(step)
    return step if isinstance(step, int) else None


def chosen(row: Mapping[str, Any]) -> dict[str, float]:
    """A row's numbers under the names of our own trainer."""
    metrics = _renamed(row, _TRAINER | _ORCHESTRATOR)
    if ORCHESTRATOR_MARK in row:
        metrics |= _of_agent(row)
    if isinstance(total := row.get("time/step"), int | float):
        # Both write it: the trainer's cycle is the one that the other times are parts of.
        name = "time/total" if TRAINER_MARK in row else "time/between_batches"
        metrics[name] = float(total)
    return metrics


def complete(metrics: dict[str, float]) -> dict[str, float]:
    """With the times that every step of ours has, also where the trainer told none."""
    total = metrics.get("time/total", metrics.get("time/between_batches", 0.0))
    training = metrics.get("time/training", 0.0)
    times = {
        "time/total": total,
        "time/training": training,
        "time/sampling": max(0.0, total - training),
    }
    return times | metrics


def evaluated(row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What a row tells of evaluations: environment -> its scores."""
    found: dict[str, dict[str, float]] = {}
    for key, value in row.items():
        if not key.startswith("eval/") or not isinstance(value, int | float):
            continue
        _, env, *rest = key.split("/")
        scores = found.setdefault(env, {})
        if rest and (rest[-1] == "policy_version" or "@" in rest[-1]):
            scores[rest[-1]] = float(value)
    return found


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    return {
        ours: float(value)
        for theirs, ours in names.items()
        if isinstance(value := row.get(theirs), int | float)
    }


def _of_agent(row: Mapping[str, Any]) -> dict[str, float]:
    """Of what was trained on; where several agents play, of the one that is named `agent` or of
    the first."""
    scope, agent = _first_agent(row)
    metrics = _renamed(row, {f"{scope}/{agent}/{key}": ours for key, ours in _OF_AGENT.items()})
    return metrics | _renamed(
        row, {f"train/agg/all/{agent}/{key}": ours for key, ours in _GROUPS.items()}
    )


def _first_agent(row: Mapping[str, Any]) -> tuple[str, str]:
    for scope in ("train/agg/effective", "train/agg/all"):
        start, end = f"{scope}/", "/reward/mean"
        agents = sorted(
            key[len(start) : -len(end)]
            for key in row
            if key.startswith(start) and key.endswith(end) and key.count("/") == 5
        )
        if agents:
            return scope, "agent" if "agent" in agents else agents[0]
    return "train/agg/effective", "agent"
