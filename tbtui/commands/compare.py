"""`tbtui compare`: two runs beside each other, on the console."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui.command_line import say
from tbtui.config import parse_settings
from tbtui.journal.rundir import find_run
from tbtui.terminal import visible
from tbtui.view.comparison import Comparison, Side, TaskDifference
from tbtui.view.reading import compare_runs


def print_comparison(first: str, second: str, *, as_json: bool) -> None:
    """Print how two runs differ; each by its directory or its name.

    Raises:
        RunDirectoryError, JournalError: there is no such run, or it can't be read.
    """
    logs_dir = parse_settings([]).logs_dir
    comparison = compare_runs(find_run(first, logs_dir), find_run(second, logs_dir))
    for trouble in comparison.troubles:
        say(trouble)
    if as_json:
        sys.stdout.write(json.dumps(document(comparison), indent=1) + "\n")
        return
    console = Console(highlight=False)
    _print_sides(console, comparison)
    _print_settings(console, comparison)
    _print_tasks(console, comparison)


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON; tasks that were scored in neither run are left out."""
    return {
        "first": asdict(comparison.first),
        "second": asdict(comparison.second),
        "settings": [asdict(each) for each in comparison.settings],
        "common": asdict(comparison.common),
        "tasks": [{**asdict(each), "change": each.change} for each in comparison.tasks],
    }


def _print_sides(console: Console, comparison: Comparison) -> None:
    table = _table("", "A", "B")
    sides = (comparison.first, comparison.second)
    table.add_row("run", *(Text(visible(side.name)) for side in sides))
    table.add_row("steps", *(str(side.steps) for side in sides))
    table.add_row("rollouts", *(str(side.rollouts) for side in sides))
    table.add_row("held out, first", *(_at(side, side.held_out[:1]) for side in sides))
    table.add_row("held out, last", *(_at(side, side.held_out[-1:]) for side in sides))
    if (step := comparison.common.held_out) is not None:
        both = ([point for point in side.held_out if point[0] == step] for side in sides)
        rates = [_at(side, points) for side, points in zip(sides, both, strict=True)]
        table.add_row(f"held out, step {step}", *rates)
    table.add_row("held out, best", *(_rate(side.best) for side in sides))
    table.add_row("held out by step", *(_curve(side) for side in sides))
    console.print(table)


def _at(side: Side, points: Sequence[tuple[float, float]]) -> str:
    """`0.25 at step 0, of 4 of 11 tasks; 7 unscored`."""
    if not points:
        return "–"
    ((step, value),) = points
    coverage = side.coverage.get(int(step), "")
    return f"{_rate(value)} at step {step:.0f}" + (f", {coverage}" if coverage else "")


def _curve(side: Side) -> str:
    """`0 .19, 15 .80`; of many evaluations the first, the last and some between."""
    points = side.held_out
    if len(points) > 6:
        points = tuple(points[round(i * (len(points) - 1) / 5)] for i in range(6))
    return ", ".join(f"{step:.0f} {_rate(value)}" for step, value in points) or "–"


def _print_settings(console: Console, comparison: Comparison) -> None:
    console.print()
    if not comparison.settings:
        console.print("the same settings")
        return
    table = _table("settings that differ", "A", "B")
    for each in comparison.settings:
        table.add_row(each.name, _shown(each.first), _shown(each.second))
    console.print(table)


def _print_tasks(console: Console, comparison: Comparison) -> None:
    console.print()
    if not comparison.tasks:
        console.print(f"nothing to compare tasks by: {comparison.common.words}")
        return
    console.print(comparison.common.words)
    table = _table("task, mean reward (trials)", "A", "B", "change")
    for each in comparison.tasks:
        table.add_row(
            Text(visible(each.name) + (" (held out)" if each.split == "eval" else "")),
            _scored(each.first, each.first_trials),
            _scored(each.second, each.second_trials),
            _change(each),
        )
    console.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name)
    return table


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _scored(value: float | None, trials: int) -> str:
    return "–" if value is None else f"{value:.2f} ({trials})"


def _change(each: TaskDifference) -> Text:
    if each.change is None:
        return Text("–")
    colour = "green" if each.change > 0 else "red" if each.change < 0 else ""
    return Text(f"{each.change:+.2f}", style=colour)


def _shown(value: object) -> Text:
    return Text(visible("none" if value is None else str(value)))
