"""The tasks of a run as a tree: data sets, kinds, tasks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import PurePath
from typing import Literal, get_args

from tbtui.view.state import RunState, TaskView
from tbtui.vocabulary import Purpose, natural_order


@dataclass(slots=True)
class Branch:
    """Tasks, and how they have gone together."""

    name: str
    dataset: str
    """Empty where the run has one."""
    tasks: list[TaskView]
    trend: list[float]
    """Oldest first."""
    recent_rate: float | None
    """Over the latest rewards."""
    held_out_rate: float | None
    """In the latest evaluation."""
    seconds: float | None
    """Mean of the latest rollouts."""

    @property
    def live(self) -> int:
        return sum(task.live for task in self.tasks)

    @property
    def rollouts(self) -> int:
        return sum(task.scored + task.unscored for task in self.tasks)

    @property
    def flake_rate(self) -> float | None:
        """Share of its trials that infrastructure has ended."""
        return sum(task.lost for task in self.tasks) / self.rollouts if self.rollouts else None


@dataclass(slots=True)
class KindView(Branch):
    """Tasks of one kind."""


@dataclass(slots=True)
class DatasetView(Branch):
    """Tasks of one data set."""

    kinds: list[KindView]


TreeOrder = Literal["name", "worst", "flaky", "slow"]
TREE_ORDERS: tuple[TreeOrder, ...] = get_args(TreeOrder)
TREE_ORDER_WORDS: dict[TreeOrder, str] = {
    "name": "by name",
    "worst": "lowest pass rate first",
    "flaky": "most lost first",
    "slow": "slowest first",
}


def dataset_name(state: RunState) -> str:
    """Name of the run's data set, or of several together."""
    return PurePath(state.tasks_dir).name or "tasks"


def task_tree(state: RunState, order: TreeOrder = "name") -> list[DatasetView]:
    """Data sets, in each its kinds, in each its tasks; all sorted the same way. By name numbers
    stand in number's order."""
    datasets: dict[str, dict[str, list[TaskView]]] = {}
    for task in state.tasks.values():
        kinds = datasets.setdefault(task.dataset, {})
        kinds.setdefault(task.kind, []).append(task)
    found = [_dataset(name, kinds, state, order) for name, kinds in datasets.items()]
    return _sorted(found, state, order)


def _dataset(
    dataset: str, kinds: Mapping[str, list[TaskView]], state: RunState, order: TreeOrder
) -> DatasetView:
    views = []
    for kind, tasks in kinds.items():
        # Held-out trials alone say how a kind goes that is never trained on.
        purpose: Purpose = "train" if any(task.split == "train" for task in tasks) else "eval"
        if state.probe is not None:
            purpose = "probe"
        rewards = list(state.kind_rewards.get((dataset, kind, purpose), ()))
        reported = state.evals[-1].by_kind.get(kind) if state.evals else None
        views.append(
            KindView(
                kind,
                dataset,
                _sorted(tasks, state, order),
                rewards,
                _mean(rewards),
                _held_out_rate(tasks, state, reported),
                seconds_per_rollout(state, *(task.name for task in tasks)),
            )
        )
    tasks = [task for view in views for task in view.tasks]
    if dataset:
        trend = list(state.dataset_rewards.get(dataset, ()))
        recent, held_out = _mean(trend), _held_out_rate(tasks, state, None)
    else:
        trend = [step.mean_reward for step in state.steps if step.mean_reward is not None]
        recent = _mean(state.rewards)
        held_out = state.evals[-1].pass_rate if state.evals else None
    return DatasetView(
        dataset or dataset_name(state),
        dataset,
        tasks,
        trend,
        recent,
        held_out,
        seconds_per_rollout(state, *(task.name for task in tasks)),
        _sorted(views, state, order),
    )


def _held_out_rate(
    tasks: Iterable[TaskView], state: RunState, reported: float | None
) -> float | None:
    """Mean over the tasks; `reported` where an evaluation says nothing of single tasks."""
    rates = state.held_out_rates
    return _mean([rates[task.name] for task in tasks if task.name in rates]) if rates else reported


def _sorted[T: (TaskView, KindView, DatasetView)](
    parts: Iterable[T], state: RunState, order: TreeOrder
) -> list[T]:
    def rank(part: T) -> tuple[float, list[tuple[int, str]]]:
        match order:
            case "name":
                value = None
            case "worst":
                value = part.recent_rate
            case "flaky":
                value = None if part.flake_rate is None else -part.flake_rate
            case "slow":
                seconds = (
                    seconds_per_rollout(state, part.name)
                    if isinstance(part, TaskView)
                    else part.seconds
                )
                value = None if seconds is None else -seconds
        return inf if value is None else value, natural_order(part.name)

    return sorted(parts, key=rank)


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None


def seconds_per_rollout(state: RunState, *tasks: str) -> float | None:
    """Mean over the latest rollouts of these tasks that ended by themselves, pauses left out."""
    seconds = [each.seconds for name in tasks for each in state.task_durations.get(name, ())]
    return sum(seconds) / len(seconds) if seconds else None
