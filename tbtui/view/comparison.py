"""The comparison of two runs: settings, each task's rewards, training. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tbtui.journal.events import Entry, Purpose, TrialFinished, TrialQueued
from tbtui.view.curves import Points, held_out_rates, training_rates
from tbtui.view.state import RunState, TaskView

REWARD_KINDS = (TrialQueued.kind, TrialFinished.kind)
"""Kinds of events that `TaskRewards` needs."""


@dataclass(slots=True)
class Rewards:
    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class TaskRewards:
    """Rewards of a run's tasks, by step. Fold every event of `REWARD_KINDS` in."""

    steps: dict[tuple[Purpose, int], dict[str, Rewards]] = field(default_factory=dict)
    """Purpose and step -> task -> rewards of its scored trials; an evaluation comes after its step.
    """
    _live: dict[str, tuple[Purpose, int, str]] = field(default_factory=dict)

    def see(self, entry: Entry) -> None:
        match event := entry.event:
            case TrialQueued():
                self._live[event.trial] = (event.purpose, event.step, event.task)
            case TrialFinished():
                queued = self._live.pop(event.trial, None)
                if queued is not None and event.reward is not None:
                    purpose, step, task = queued
                    rewards = self.steps.setdefault((purpose, step), {}).setdefault(task, Rewards())
                    rewards.count += 1
                    rewards.total += event.reward
            case _:
                pass

    def of(self, task: str, purpose: Purpose, steps: Iterable[int]) -> Rewards:
        """A task's rewards at these steps."""
        found = [self.steps.get((purpose, step), {}).get(task, Rewards()) for step in steps]
        return Rewards(sum(each.count for each in found), sum(each.total for each in found))


_PLACES = frozenset({"logs_dir", "run_name"})
"""Settings in which any two runs differ."""


@dataclass(frozen=True, slots=True)
class SettingDifference:
    name: str
    first: Any
    """None, too, where a run doesn't know the setting."""
    second: Any


@dataclass(frozen=True, slots=True)
class TaskDifference:
    """One task's rewards in both runs, over the scored trials of the `Common` part."""

    name: str
    kind: str
    split: Purpose
    first: float | None
    """Mean reward; None: no trial of it was scored, or the run hasn't got the task."""
    first_trials: int
    second: float | None
    second_trials: int

    @property
    def change(self) -> float | None:
        """From the first run to the second; None where only one of them tried."""
        if self.first is None or self.second is None:
            return None
        return self.second - self.first


@dataclass(frozen=True, slots=True)
class Common:
    """The last steps that both runs have in common, by which their tasks are compared."""

    held_out: int | None
    """The last step after which both were evaluated: for held-out tasks. None: there is none."""
    trained: int
    """Both have trained the steps from 1 to this one: for training tasks."""

    @property
    def words(self) -> str:
        held_out = (
            "no step was evaluated in both"
            if self.held_out is None
            else f"held-out tasks after step {self.held_out}, the last that both evaluated"
        )
        trained = (
            f"training tasks in step{f's 1 to {self.trained}' if self.trained > 1 else ' 1'},"
            " which both have"
            if self.trained
            else "no step was trained in both"
        )
        return f"{held_out}; {trained}"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    name: str
    steps: int
    rollouts: int
    held_out: Points
    """Pass rate after each step that was evaluated."""
    training: Points
    """Mean reward of each step."""
    coverage: Mapping[int, str]
    """Step -> what its pass rate is of, where not all held-out tasks could be scored."""

    @property
    def best(self) -> float | None:
        """The best held-out pass rate."""
        return max((value for _, value in self.held_out), default=None)


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Side
    second: Side
    settings: tuple[SettingDifference, ...]
    tasks: tuple[TaskDifference, ...]
    """Those with a scored trial in either: largest changes first, then what one of them tried."""
    common: Common
    troubles: tuple[str, ...] = ()
    """What of them could not be read, and is missing here."""

    @property
    def last_step(self) -> float:
        """Where a common axis of steps ends."""
        sides = (self.first, self.second)
        points = [x for side in sides for x, _ in (*side.held_out, *side.training)]
        return max(1.0, *points) if points else 1.0


def compare(
    first: RunState,
    second: RunState,
    tallies: tuple[TaskRewards, TaskRewards],
    names: tuple[str, str] | None = None,
) -> Comparison:
    """`names`: what to call them, if not what they were called when they began."""
    first_name, second_name = names or (first.run, second.run)
    evaluated = {each.step for each in first.evals} & {each.step for each in second.evals}
    common = Common(max(evaluated, default=None), min(first.step, second.step))
    return Comparison(
        _side(first_name, first),
        _side(second_name, second),
        tuple(_settings(first.settings, second.settings)),
        tuple(_tasks(first.tasks, second.tasks, tallies, common)),
        common,
    )


def _side(name: str, state: RunState) -> Side:
    return Side(
        name,
        state.step,
        state.rollouts,
        held_out_rates(state),
        training_rates(state),
        {
            each.step: each.held_out.coverage
            for each in state.evals
            if each.held_out is not None and each.held_out.coverage
        },
    )


def _settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[SettingDifference]:
    names = dict.fromkeys((*first, *second))
    return [
        SettingDifference(name, first.get(name), second.get(name))
        for name in names
        if name not in _PLACES and first.get(name) != second.get(name)
    ]


def _tasks(
    first: Mapping[str, TaskView],
    second: Mapping[str, TaskView],
    tallies: tuple[TaskRewards, TaskRewards],
    common: Common,
) -> list[TaskDifference]:
    trained = range(1, common.trained + 1)
    held_out = () if common.held_out is None else (common.held_out,)
    differences = []
    for name in dict.fromkeys((*first, *second)):
        known = first.get(name) or second[name]
        steps = trained if known.split == "train" else held_out
        one, other = (tally.of(name, known.split, steps) for tally in tallies)
        if one.count or other.count:
            differences.append(
                TaskDifference(
                    name,
                    known.kind,
                    known.split,
                    one.mean,
                    one.count,
                    other.mean,
                    other.count,
                )
            )
    return sorted(
        differences,
        key=lambda each: (each.change is None, -abs(each.change or 0.0), each.name),
    )
