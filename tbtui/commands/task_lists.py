"""`tbtui tasks list`, `sets` and `check`, on the screen."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from tbtui.catalog import CatalogError, find_tasks
from tbtui.catalog.defects import Defect
from tbtui.catalog.report import (
    CheckReport,
    Progress,
    TaskRow,
    check_directory,
    task_rows,
    warning_groups,
)
from tbtui.catalog.sets import SET_MARK, delete_set, load_set, set_names
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import discover
from tbtui.config import RunConfig
from tbtui.engines.task_fitness import Fitness, choose_for_tasks, offer
from tbtui.invocation import to_type
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.terminal import counted, visible


def print_sets(name: str | None) -> None:
    """A line for each saved set; of one set its tasks, one a line.

    Raises:
        CatalogError: there is no set of that name, or its file can't be used.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if name is not None:
        for task in load_set(name.removeprefix(SET_MARK)).tasks:
            console.print(visible(task))
        return
    names = set_names()
    width = max((len(each) for each in names), default=0) + 1
    for each in names:
        try:
            saved = load_set(each)
        except CatalogError as error:
            console.print(f"{SET_MARK + each:{width}} unreadable: {visible(str(error))}")
            continue
        where = f"  of {visible(str(saved.tasks_dir))}" if saved.tasks_dir else ""
        console.print(f"{SET_MARK + each:{width}} {counted(len(saved.tasks), 'task'):>11}{where}")
    if not names:
        console.print(f"no set is saved yet: {to_type('tasks', 'browse')}")


def remove_set(name: str) -> None:
    """Delete a saved set. Raises `CatalogError` when there is none of that name."""
    delete_set(name.removeprefix(SET_MARK))
    typer.echo(f"{SET_MARK}{name.removeprefix(SET_MARK)} is deleted")


def print_tasks(directory: Path | None, *, as_json: bool = False) -> None:
    """A directory's tasks: a table on a terminal, else a line of tab-separated fields each.

    Raises:
        CatalogError: there are none.
    """
    catalog = discover(find_tasks(directory) if directory else tasks_dir())
    config = RunConfig()
    # To list them, nothing has to be left to train on.
    split = split_tasks(
        catalog.require_tasks(), eval_split=config.eval_split, seed=config.seed, trains=False
    )
    rows = task_rows(split)
    if as_json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    elif sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            typer.echo("\t".join(visible(cell) for cell in _cells(row).values()))
    # Beside what a script reads.
    parts = f"{len(split.train)} to train on, {len(split.heldout)} held out"
    said = f"{counted(len(rows), 'task')}: {parts}"
    typer.echo(said, err=as_json or not sys.stdout.isatty())
    if catalog.defects:
        broken = len({defect.task for defect in catalog.defects})
        typer.echo(
            f"{broken} more can't be used: {to_type('tasks', 'check', catalog.directory)}",
            err=as_json or not sys.stdout.isatty(),
        )


def _cells(row: TaskRow) -> dict[str, str]:
    """The row's cells, by column."""
    return {
        "dataset": row.dataset,
        "task": row.name,
        "use": row.use,
        "difficulty": row.difficulty,
        "category": row.category,
        "asks": row.summary,
    }


def _print_table(rows: Sequence[TaskRow]) -> None:
    """Print a table whose last column, what a task asks for, gets at least half of the width."""
    console = Console()
    cells = [_cells(row) for row in rows]
    columns = ["dataset", "task", "use", "difficulty", "category", "asks"]
    if len({row.dataset for row in rows}) == 1:
        columns.remove("dataset")
    for column in ("difficulty", "category", "dataset"):
        widths = (
            max(len(column), *(len(each[column]) for each in cells)) for column in columns[:-1]
        )
        if column in columns and sum(widths) + 2 * len(columns) > console.width // 2:
            columns.remove(column)
    console.print(_table(columns, [[each[column] for column in columns] for each in cells]))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Columns as wide as what is in them, but for the last, which takes what is left."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for number, column in enumerate(columns[:-1]):
        widest = max(len(column), *(len(row[number]) for row in rows))
        table.add_column(column, no_wrap=True, width=widest)
    table.add_column(columns[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table


_ONE_BY_ONE = 3
"""Warnings of a kind that are still printed singly."""


def check_tasks(directory: Path | None, *, errors_only: bool, as_json: bool) -> bool:
    """Print every defect of a directory's tasks; says whether all of them can be used.

    Raises:
        CatalogError: there are none.
    """
    with _progress() as tell:
        report = asyncio.run(
            check_directory(find_tasks(directory) if directory else tasks_dir(), tell)
        )
        tell("comparing with this machine", 0, len(report.tasks))
        fitness = _fitness(report)
    if as_json:
        _print_json(report, fitness, errors_only=errors_only)
    else:
        _print(report, fitness, errors_only=errors_only)
    return report.usable == report.found


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, where that is a terminal; gone when all is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Bar(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        shown = bar.add_task("looking for tasks", total=None)

        def tell(what: str, done: int, of: int) -> None:
            bar.update(shown, description=f"{what} tasks", completed=done, total=of)

        yield tell


def _fitness(report: CheckReport) -> Fitness | None:
    """How the tasks fit the environment of a run here; None where it could run no trial."""
    try:
        _, fitness = choose_for_tasks(RunConfig(), [task.path for task in report.tasks])
    except EnvironmentUnavailable:
        return None
    return fitness


def _fitness_lines(report: CheckReport, fitness: Fitness | None) -> Iterator[str]:
    if fitness is None:
        yield f"no trial can run on this machine: see {to_type('doctor')}"
        return
    if taken := fitness.taken():
        yield taken
    if (summary := fitness.summary()) is None:
        return
    for task in report.tasks:
        if found := fitness.unusable.get(task.path):
            yield f"not for this machine: {task.name}: {found[0].text}"
    yield f"{summary}{offer(fitness)}"


def _print(report: CheckReport, fitness: Fitness | None, *, errors_only: bool) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(visible(report.where), markup=False)
    for row in report.rows:
        if row.severity == "error":
            console.print(_line(row, ""))
    groups = warning_groups(report.rows)
    for group in [] if errors_only else groups:
        if len(group) <= _ONE_BY_ONE:
            for row in group:
                console.print(_line(row, ""))
        else:
            console.print(_line(group[0], f" {len(group):,} times, first at"))
    for note in (*report.notes, *(() if errors_only else report.advice)):
        console.print(visible(note), markup=False)
    lines = list(_fitness_lines(report, fitness))
    for line in lines[-1:] if errors_only else lines:
        console.print(visible(line), markup=False)
    console.print(_summary(report, len(groups)), markup=False)


def _line(row: Defect, how_many: str) -> Text:
    colour = "red" if row.severity == "error" else "yellow"
    said = visible(f"{how_many} {row.where}: {row.message}; {row.remedy}")
    return Text.assemble((row.severity, colour), said)


def _summary(report: CheckReport, kinds: int) -> str:
    """`2 of 3 tasks are valid (Harbor 0.24.0) · 2 errors in 1 task · no warnings`."""
    broken = report.found - report.usable
    errors = f"{_count(report.errors, 'error')} in {_count(broken, 'task')}"
    warnings = _count(report.warnings, "warning")
    if kinds > 1:
        warnings += f" of {kinds} kinds"
    return (
        f"{report.usable:,} of {_count(report.found, 'task')}"
        f" {'is' if report.found == 1 else 'are'} valid ({report.harbor})"
        f" · {errors if broken else 'no errors'} · {warnings}"
    )


def _count(number: int, what: str) -> str:
    return f"{number or 'no':{',' if number else ''}} {what}{'' if number == 1 else 's'}"


def _print_json(report: CheckReport, fitness: Fitness | None, *, errors_only: bool) -> None:
    """One JSON object; its text is ASCII, so that no task can give the terminal orders."""
    rows = [row for row in report.rows if row.severity == "error" or not errors_only]
    typer.echo(
        json.dumps(
            {
                "directory": str(report.directory),
                "harbor": report.harbor,
                "datasets": dict(report.datasets),
                "found": report.found,
                "usable": report.usable,
                "errors": report.errors,
                "warnings": report.warnings,
                "defects": [
                    {
                        "task": row.task,
                        "where": row.where,
                        "severity": row.severity,
                        "message": row.message,
                        "remedy": row.remedy,
                    }
                    for row in rows
                ],
                "notes": list(report.notes),
                "advice": list(report.advice),
                "environment": fitness.environment if fitness else None,
                "variables": {
                    task.name: [asdict(each) for each in fitness.variables[task.path]]
                    for task in report.tasks
                    if fitness and task.path in fitness.variables
                },
                "obstacles": {
                    task.name: [
                        {"kind": e.kind, "text": e.text} for e in fitness.unusable[task.path]
                    ]
                    for task in report.tasks
                    if fitness and task.path in fitness.unusable
                },
            },
            indent=1,
        )
    )
