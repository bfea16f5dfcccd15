"""Makes the rows of `tbtui tasks list` and `tbtui tasks check`, which the command line prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tbtui.catalog.check import advice, deep_check_all
from tbtui.catalog.defects import Defect
from tbtui.catalog.load import TaskInfo, harbor_version
from tbtui.catalog.split import Split
from tbtui.catalog.tasks import discover

Use = Literal["train", "heldout", "unused"]

Progress = Callable[[str, int, int], None]

_SUMMARY_CHARS = 100
_NAMES = re.compile(r"'[^']*'|\d+|(?<=unknown key )\S+(?: did you mean \S+)?")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line of `tbtui tasks list`."""

    dataset: str
    name: str
    use: Use
    difficulty: str
    category: str
    tags: tuple[str, ...]
    agent_timeout_sec: float
    summary: str
    """The first line of its instruction."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of checking a directory. `usable` counts tasks without an error."""

    directory: Path
    harbor: str
    """Whose verdict it is, with its version."""
    datasets: tuple[tuple[str, int], ...]
    found: int
    usable: int
    rows: tuple[Defect, ...]
    """Errors first, then by task and file; their paths are relative to the directory."""
    notes: tuple[str, ...]
    where: str
    """Where the tasks were found, in words."""
    tasks: tuple[TaskInfo, ...] = ()
    """Those that can be used."""
    advice: tuple[str, ...] = ()
    """What could be better though nothing is wrong."""

    @property
    def errors(self) -> int:
        return sum(row.severity == "error" for row in self.rows)

    @property
    def warnings(self) -> int:
        return len(self.rows) - self.errors


def task_rows(split: Split) -> list[TaskRow]:
    """A row per task, training tasks first within each data set."""
    uses: list[tuple[Use, Sequence[TaskInfo]]] = [
        ("train", split.train),
        ("heldout", split.heldout),
        ("unused", split.unused),
    ]
    rows = [_task_row(task, use) for use, tasks in uses for task in tasks]
    return sorted(rows, key=lambda row: row.dataset)


def _task_row(task: TaskInfo, use: Use) -> TaskRow:
    return TaskRow(
        dataset=task.dataset,
        name=task.name,
        use=use,
        difficulty=task.difficulty or "",
        category=task.category or task.kind or "",
        tags=task.tags,
        agent_timeout_sec=task.agent_timeout_sec,
        summary=_first_line(task.instruction),
    )


def summary(instruction: str) -> str:
    """First line of an instruction that says something, without Markdown's heading marks; cut."""
    first = _first_line(instruction)
    return first if len(first) <= _SUMMARY_CHARS else first[: _SUMMARY_CHARS - 1] + "…"


def _first_line(instruction: str) -> str:
    lines = (line.strip().lstrip("#").strip() for line in instruction.splitlines())
    return next((line for line in lines if line), "")


def _relative(defect: Defect, root: Path) -> Defect:
    path = defect.path
    return replace(defect, path=path.relative_to(root)) if path.is_relative_to(root) else defect


async def check_directory(
    directory: Path, tell: Progress = lambda what, done, of: None
) -> CheckReport:
    """Checks every task in `directory` thoroughly.

    `tell` is called with what is being done ("reading", "checking"), how many tasks are done, and
    of how many.

    Raises:
        CatalogError: there is no task to check.
    """
    catalog = discover(directory, lambda done, of: tell("reading", done, of))
    of = len(catalog.tasks)
    deep = await deep_check_all(catalog.tasks, lambda done: tell("checking", done, of))
    defects = sorted(
        (*catalog.defects, *deep),
        key=lambda defect: (defect.severity, defect.task, defect.path, defect.line or 0),
    )
    broken = {defect.task for defect in deep if defect.severity == "error"}
    sound = tuple(task for task in catalog.tasks if task.name not in broken)
    return CheckReport(
        directory=catalog.directory,
        harbor=harbor_version(),
        datasets=catalog.datasets,
        found=catalog.found,
        usable=len(catalog.tasks) - len(broken),
        rows=tuple(_relative(defect, catalog.directory) for defect in defects),
        notes=catalog.notes,
        advice=tuple(advice(sound)),
        where=catalog.where,
        tasks=sound,
    )


def warning_groups(rows: Sequence[Defect]) -> list[list[Defect]]:
    """Warnings that say the same but for names and numbers, the most frequent first."""
    groups: dict[str, list[Defect]] = {}
    for row in rows:
        if row.severity == "warning":
            groups.setdefault(_NAMES.sub("_", row.message), []).append(row)
    return sorted(groups.values(), key=len, reverse=True)
