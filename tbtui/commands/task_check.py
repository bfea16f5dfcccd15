"""`tbtui tasks check`, on the screen: errors one by one, warnings by kind, and how many of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from tbtui.catalog.places import find_tasks
from tbtui.catalog.report import (
    CheckReport,
    DefectRow,
    Progress,
    check_directory,
    warning_groups,
)
from tbtui.config import RunConfig
from tbtui.engines.task_fitness import Fitness, choose_for_tasks, offer
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.errors import EnvironmentUnavailable
from tbtui.terminal import visible

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
    """What a run on this machine could serve; None where it could run no trial at all."""
    try:
        _, fitness = choose_for_tasks(RunConfig(), [task.path for task in report.tasks])
    except EnvironmentUnavailable:
        return None
    return fitness


def _fitness_lines(report: CheckReport, fitness: Fitness | None) -> Iterator[str]:
    if fitness is None:
        yield "no trial can run on this machine: see tbtui doctor"
        return
    if (summary := fitness.summary()) is None:
        return
    for task in report.tasks:
        if (reason := fitness.reason(task.path)) is not None:
            yield f"not for this machine: {task.name}: {reason}"
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


def _line(row: DefectRow, how_many: str) -> Text:
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
        f"{report.usable:,} of {_count(report.found, 'task')} are valid ({report.harbor})"
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
                "defects": [asdict(row) for row in rows],
                "notes": list(report.notes),
                "advice": list(report.advice),
                "environment": fitness.environment if fitness else None,
                "obstacles": {
                    task.name: [asdict(each) for each in fitness.obstacles[task.path]]
                    for task in report.tasks
                    if fitness and task.path in fitness.obstacles
                },
            },
            indent=1,
        )
    )
