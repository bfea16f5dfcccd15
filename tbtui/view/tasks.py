"""The tasks of a run as a tree: dataset, kinds, tasks. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath

from tbtui.view.state import RunState, TaskView


@dataclass(slots=True)
class KindView:
    """Tasks of one kind and how they have gone together."""

    name: str
    tasks: list[TaskView] = field(default_factory=list)
    trend: list[float] = field(default_factory=list)
    """Latest rewards, oldest first."""
    held_out_rate: float | None = None
    """In the latest evaluation."""

    seconds: float | None = None
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

    @property
    def recent_rate(self) -> float | None:
        return sum(self.trend) / len(self.trend) if self.trend else None


@dataclass(slots=True)
class DatasetView:
    name: str
    kinds: list[KindView]

    @property
    def tasks(self) -> list[TaskView]:
        return [task for kind in self.kinds for task in kind.tasks]

    @property
    def flake_rate(self) -> float | None:
        """Share of its trials that infrastructure has ended."""
        rollouts = sum(kind.rollouts for kind in self.kinds)
        return sum(task.lost for task in self.tasks) / rollouts if rollouts else None


def dataset_name(state: RunState) -> str:
    return PurePath(state.tasks_dir).name or "tasks"


def task_tree(state: RunState) -> DatasetView:
    """Kinds in alphabetical order, tasks by name with numbers in number's order."""
    kinds: dict[str, KindView] = {}
    for task in state.tasks.values():
        kind = task.kind or "other"
        kinds.setdefault(kind, KindView(kind)).tasks.append(task)
    for each in kinds.values():
        each.tasks.sort(key=lambda task: _natural(task.name))
        each.trend = list(state.kind_rewards.get(each.name, ()))
        each.seconds = seconds_per_rollout(state, *(task.name for task in each.tasks))
        each.held_out_rate = state.evals[-1].by_kind.get(each.name) if state.evals else None
    return DatasetView(dataset_name(state), [kinds[name] for name in sorted(kinds)])


def seconds_per_rollout(state: RunState, *tasks: str) -> float | None:
    """Mean over the latest rollouts of these tasks that ended by themselves, pauses left out."""
    seconds = [each.seconds for name in tasks for each in state.task_durations.get(name, ())]
    return sum(seconds) / len(seconds) if seconds else None


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
