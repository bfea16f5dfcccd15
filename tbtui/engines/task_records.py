"""A run's tasks by use, as its journal tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbtui.journal.events import Purpose, TaskRecord

if TYPE_CHECKING:
    from tbtui.catalog.split import Split
    from tbtui.catalog.tasks import TaskInfo


def task_records(split: Split) -> tuple[TaskRecord, ...]:
    """With the data set of each, where they are of several."""
    uses: tuple[tuple[Purpose, tuple[TaskInfo, ...]], ...] = (
        ("train", split.train),
        ("eval", split.heldout),
    )
    several = len({task.dataset for _, tasks in uses for task in tasks}) > 1
    return tuple(
        TaskRecord(
            name=task.name,
            kind=task.kind,
            category=task.category,
            difficulty=task.difficulty,
            split=purpose,
            dataset=task.dataset if several else "",
        )
        for purpose, tasks in uses
        for task in tasks
    )
