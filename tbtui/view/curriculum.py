"""Which tasks a run's next batch is likely to have, and what people want of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tbtui.journal.figures import task_shares
from tbtui.view.state import RunState, TaskView


def sampling(state: RunState) -> str:
    """`uniform`, `learnability` or `thompson`; a run of before has no such setting."""
    return str(state.settings.get("task_sampling", "uniform"))


def weighted(state: RunState) -> bool:
    """Whether tasks are drawn by weights, and not in the seed's order."""
    return sampling(state) != "uniform" or any(map(_steered, state.tasks.values()))


def shares(state: RunState) -> dict[str, float]:
    """Each training task's chance to be the next one drawn; nothing of those that can't be.

    Under `thompson` it is the one that the mean weights would give.
    """
    uniform = sampling(state) == "uniform"
    floor = 0.0 if uniform else float(state.settings.get("task_floor", 0.0))
    weights = {
        task.name: task.factor * (1.0 if uniform else _learnability(task, state))
        for task in state.tasks.values()
        if task.split == "train" and task.name not in state.unusable and not muted(task)
    }
    untried = {
        name: state.tasks[name].factor
        for name in weights
        if not uniform and state.tasks[name].belief is None
    }
    return task_shares(weights, floor, untried)


def no_signal(tasks: Iterable[TaskView], state: RunState) -> float | None:
    """The expected share of groups of these tasks whose rewards are all equal; None: unknown."""
    found = [belief.no_signal for task in tasks if (belief := task.belief or state.unseen)]
    return sum(found) / len(found) if found else None


def muted(task: TaskView) -> bool:
    """Whether somebody wants no group of it."""
    return task.factor == 0 and not task.pinned


def wish(task: TaskView) -> str:
    """What somebody wants of it, in a word or two: `muted`, `pinned`, `×2`; empty: nothing."""
    if task.pinned:
        return "pinned"
    return "muted" if muted(task) else "" if task.factor == 1 else f"×{task.factor:g}"


def _steered(task: TaskView) -> bool:
    return task.pinned or task.factor != 1


def _learnability(task: TaskView, state: RunState) -> float:
    belief = task.belief or state.unseen
    return belief.learnability if belief else 1.0
