"""`tbtui tasks flakes`: repeats each task's solution, and doing nothing, alone and under load.

A verdict that changes is nobody's doing but the verifier's, the task's or the machine's. Such tasks
are written into the directory's quarantine, with the figures.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui import launch
from tbtui.algorithm.evaluation import Rate, TaskAttempts, pass_rate
from tbtui.catalog import find_tasks
from tbtui.catalog.cheats import NOTHING, battery
from tbtui.catalog.quarantine import Quarantined, read_quarantine, write_quarantine
from tbtui.catalog.sets import choose
from tbtui.catalog.tasks import discover
from tbtui.catalog.variants import with_solution
from tbtui.command_line import EXIT_FAILED
from tbtui.commands.variant_trials import VariantTrial, run_variants, variants
from tbtui.terminal import counted, visible

SOLUTION = "solution"
ALONE, LOADED = "alone", "under load"


@dataclass(frozen=True, slots=True)
class Cell:
    """Trials of one task by one actor in one condition."""

    passed: int
    scored: int
    no_verdict: int
    """Trials whose verifier came to none."""

    @property
    def rate(self) -> Rate | None:
        return pass_rate([TaskAttempts(self.passed, self.scored)], 1)

    @property
    def short(self) -> str:
        """`18/20 .70-.97`; where some had no verdict, `16/18 .65-.98 +2?`."""
        if (rate := self.rate) is None:
            return f"0/0 +{self.no_verdict}?"
        low, high = (f"{bound:.2f}".removeprefix("0") for bound in (rate.low, rate.high))
        said = f"{self.passed}/{self.scored} {low}-{high}"
        return said + (f" +{self.no_verdict}?" if self.no_verdict else "")

    @property
    def text(self) -> str:
        """`18 of 20 (.70-.97)`, and how many had no verdict."""
        if (rate := self.rate) is None:
            return "no verdict"
        said = f"{self.passed} of {self.scored} ({rate.low:.2f}-{rate.high:.2f})"
        return said + (f", {self.no_verdict} without verdict" if self.no_verdict else "")


@dataclass(frozen=True, slots=True)
class TaskFlakes:
    """A task's cells: (actor, condition) -> figures."""

    task: str
    cells: Mapping[tuple[str, str], Cell]

    @property
    def fault(self) -> str | None:
        """Why it can't be trusted, one line; None: every verdict is what it should be."""
        for actor, right in ((SOLUTION, True), (NOTHING, False)):
            cells = {how: cell for (who, how), cell in self.cells.items() if who == actor}
            scored = sum(cell.scored for cell in cells.values())
            passed = sum(cell.passed for cell in cells.values())
            unscored = sum(cell.no_verdict for cell in cells.values())
            if unscored or passed != (scored if right else 0):
                said = ", ".join(f"{cell.text} {how}" for how, cell in cells.items())
                does = "its solution passes" if right else "doing nothing passes"
                return f"{does} {said}"
        return None


def flakes(
    directory: Path | None,
    settings: Sequence[str],
    *,
    repeats: int,
    load: int,
    tasks: Sequence[str],
    as_json: bool,
    watch: bool,
) -> int:
    """Repeat trials of every task; prints a table or JSON, and writes the quarantine.

    Args:
        repeats: trials of each actor in each condition.
        load: trials at once, and busy processes beside them, under load.
        tasks: patterns of names; none: all.

    Returns the exit status: 0 every verdict is what it should be, 1 otherwise.

    Raises:
        UserError: bad input.
    """
    where = find_tasks(directory)
    catalog = discover(where)
    known = {task.name: task.full_name for task in catalog.require_tasks()}
    chosen = choose(known, tasks, "--task") if tasks else frozenset(known)
    quarantine = read_quarantine(where)
    (nothing,) = battery((NOTHING,))
    trials: dict[str, list[VariantTrial]] = {}
    view: launch.View = "app" if watch else "progress"
    with variants() as made:
        for task in catalog.tasks:
            if task.name in chosen:
                if task.has_solution:
                    made.add(SOLUTION, task, partial(with_solution, script=None))
                made.add(NOTHING, task, partial(with_solution, script=nothing.text))
        for how, at_once in ((ALONE, 1), (LOADED, load)):
            with busy(load if how == LOADED else 0):
                status, run, trials[how] = run_variants(
                    made,
                    where,
                    [*settings, f"eval_group_size={repeats}", f"n_parallel_envs={at_once}"],
                    f"flakes-{how.replace(' ', '-')}",
                    view,
                )
            if run is None:
                return status
    assert run is not None
    found = [_figures(name, trials) for name in known if name in chosen]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    for each in found:
        quarantine.pop(each.task, None)
        if each.fault is not None:
            quarantine[each.task] = Quarantined(
                reason=each.fault, found=now, run=run.name, evidence=_evidence(each)
            )
    file = write_quarantine(where, quarantine)
    bad = [each for each in found if each.fault is not None]
    if as_json:
        sys.stdout.write(json.dumps(_document(found, file), indent=1) + "\n")
    else:
        _print(found, bad, file)
    return EXIT_FAILED if bad else 0


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many processes busy with nothing meanwhile."""
    command = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    spinning = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _figures(task: str, trials: Mapping[str, Sequence[VariantTrial]]) -> TaskFlakes:
    cells: dict[tuple[str, str], Cell] = {}
    for how, ended in trials.items():
        for actor in (SOLUTION, NOTHING):
            own = [each for each in ended if each.task == task and each.variant == actor]
            scored = [each for each in own if each.verdict is not None]
            # What the machine has lost says nothing of the task.
            silent = sum(each.outcome == "verifier_error" for each in own if each.verdict is None)
            if scored or silent:
                cells[actor, how] = Cell(sum(e.passed for e in scored), len(scored), silent)
    return TaskFlakes(task, cells)


def _evidence(each: TaskFlakes) -> dict[str, Any]:
    evidence: dict[str, Any] = {}
    for (actor, how), cell in each.cells.items():
        rate = cell.rate
        figures: dict[str, Any] = {**asdict(cell)}
        if rate is not None:
            figures |= {"low": round(rate.low, 4), "high": round(rate.high, 4)}
        evidence.setdefault(actor, {})[how] = figures
    return evidence


def _document(found: Sequence[TaskFlakes], file: Path) -> dict[str, Any]:
    return {
        "quarantine": str(file) if file.is_file() else None,
        "tasks": [
            {"task": each.task, "fault": each.fault, "trials": _evidence(each)} for each in found
        ],
    }


def _print(found: Sequence[TaskFlakes], bad: Sequence[TaskFlakes], file: Path) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=32)
    heads = [(actor, how) for actor in (SOLUTION, NOTHING) for how in (ALONE, LOADED)]
    for head in ("solution alone", "under load", "nothing alone", "under load"):
        table.add_column(head, no_wrap=True)
    for each in found:
        cells = [each.cells.get(head) for head in heads]
        style = "red" if each.fault is not None else ""
        shown = [Text("-" if cell is None else cell.short, style=style) for cell in cells]
        table.add_row(Text(visible(each.task), style=style), *shown)
    console.print(table)
    console.print()
    for each in bad:
        console.print(Text(visible(f"{each.task}: {each.fault}"), style="red"), soft_wrap=True)
    where = f"; quarantined in {file}" if bad else ""
    of = f"{len(found) - len(bad)} of {counted(len(found), 'task')}"
    text = f"{of} give the same verdict each time{where}"
    console.print(text, markup=False, soft_wrap=True)
