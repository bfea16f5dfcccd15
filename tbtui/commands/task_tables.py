"""`tbtui tasks list` and `tbtui tasks sets`, on the screen."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui.catalog.errors import CatalogError
from tbtui.catalog.places import find_tasks
from tbtui.catalog.report import TaskRow, task_rows
from tbtui.catalog.sets import SET_MARK, delete_set, load_set, set_names
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import TaskInfo, discover
from tbtui.config import RunConfig
from tbtui.resources import tasks_dir
from tbtui.terminal import visible


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
        console.print(f"{SET_MARK + each:{width}} {len(saved.tasks):5} tasks{where}")
    if not names:
        console.print("no set is saved yet: tbtui tasks browse")


def remove_set(name: str) -> None:
    """Raises `CatalogError` when there is none of that name."""
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
    asks = _asks(catalog.tasks)
    if as_json:
        documents = [{**asdict(row), "summary": asks[row.dataset, row.name]} for row in rows]
        sys.stdout.write(json.dumps(documents, indent=1) + "\n")
    elif sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            cells = {**_cells(row), "asks": asks[row.dataset, row.name]}
            typer.echo("\t".join(visible(cell) for cell in cells.values()))
    # Beside what a script reads.
    said = f"{len(rows)} tasks: {len(split.train)} to train on, {len(split.heldout)} held out"
    typer.echo(said, err=as_json or not sys.stdout.isatty())
    if catalog.defects:
        broken = len({defect.task for defect in catalog.defects})
        typer.echo(
            f"{broken} more can't be used: tbtui tasks check {catalog.directory}",
            err=as_json or not sys.stdout.isatty(),
        )


def _asks(tasks: Sequence[TaskInfo]) -> dict[tuple[str, str], str]:
    """What each task's summary is the beginning of, uncut, by data set and name."""
    lines = {
        (task.dataset, task.name): (
            line.strip().lstrip("#").strip() for line in task.instruction.splitlines()
        )
        for task in tasks
    }
    return {key: next((line for line in each if line), "") for key, each in lines.items()}


def _cells(row: TaskRow) -> dict[str, str]:
    """By column."""
    return {
        "dataset": row.dataset,
        "task": row.name,
        "use": row.use,
        "difficulty": row.difficulty,
        "category": row.category,
        "asks": row.summary,
    }


def _print_table(rows: Sequence[TaskRow]) -> None:
    """What a task asks for gets at least half of the width; other columns make room for it."""
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
