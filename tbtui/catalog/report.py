"""Plain rows for `tbtui tasks list` and `tbtui tasks check`; printing is the command line's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.catalog.check import deep_check_all
from tbtui.catalog.defects import Defect, Severity
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.split import Split
from tbtui.catalog.tasks import Catalog, discover

Use = Literal["train", "heldout", "unused"]

_SUMMARY_CHARS = 100


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


@dataclass(frozen=True, slots=True)
class DefectRow:
    """One line of `tbtui tasks check`; `where` is relative to the checked directory."""

    task: str
    where: str
    severity: Severity
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Outcome of checking a directory. `usable` counts tasks without an error."""

    directory: Path
    found: int
    usable: int
    rows: tuple[DefectRow, ...]

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
        summary=summary(task.instruction),
    )


def summary(instruction: str) -> str:
    """First line of an instruction that says something, without Markdown's heading marks."""
    lines = (line.strip().lstrip("#").strip() for line in instruction.splitlines())
    first = next((line for line in lines if line), "")
    return first if len(first) <= _SUMMARY_CHARS else first[: _SUMMARY_CHARS - 1] + "…"


def defect_rows(catalog_directory: Path, defects: Sequence[Defect]) -> tuple[DefectRow, ...]:
    """Rows in the order of `defects`."""
    return tuple(
        DefectRow(
            task=defect.task,
            where=_relative(defect, catalog_directory),
            severity=defect.severity,
            message=defect.message,
            remedy=defect.remedy,
        )
        for defect in defects
    )


def _relative(defect: Defect, root: Path) -> str:
    path = defect.path.relative_to(root) if defect.path.is_relative_to(root) else defect.path
    return f"{path}:{defect.line}" if defect.line is not None else str(path)


async def check_directory(directory: Path) -> CheckReport:
    """Checks every task in `directory` thoroughly.

    Raises:
        CatalogError: there is no task to check.
    """
    catalog: Catalog = discover(directory)
    deep = await deep_check_all(catalog.tasks)
    defects = sorted((*catalog.defects, *deep), key=lambda defect: (defect.task, defect.path))
    broken = {defect.task for defect in catalog.defects}
    spoiled = {defect.task for defect in deep if defect.severity == "error"}
    usable = sum(task.name not in spoiled for task in catalog.tasks)
    return CheckReport(
        directory=catalog.directory,
        found=len({task.name for task in catalog.tasks} | broken),
        usable=usable,
        rows=defect_rows(catalog.directory, defects),
    )
