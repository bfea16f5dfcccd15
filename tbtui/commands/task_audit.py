"""`tbtui tasks audit`: tries a battery of cheats on every task of a directory, in real trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui import launch
from tbtui.catalog import find_tasks
from tbtui.catalog.cheats import Cheat, battery
from tbtui.catalog.sets import choose
from tbtui.catalog.tasks import TaskInfo, discover
from tbtui.catalog.variants import can_invert, impossible, with_solution
from tbtui.command_line import EXIT_FAILED
from tbtui.commands.variant_trials import Variants, VariantTrial, run_variants, variants
from tbtui.invocation import to_type
from tbtui.journal.rundir import RunDirectory
from tbtui.terminal import counted, visible

SOLUTION = "solution"
IMPOSSIBLE = "impossible"
_ON_IMPOSSIBLE = ("rewritten-verdict", "interpreter", "comparison", "test-runner")
"""Cheats that are tried on the impossible variant too, on top of the task's solution."""


@dataclass(frozen=True, slots=True)
class TaskAudit:
    """What was tried on a task."""

    task: str
    trials: tuple[VariantTrial, ...]

    @property
    def solved(self) -> bool | None:
        """Whether the task's own solution passes; None: there is none, or it gave no verdict."""
        own = [each for each in self.trials if each.variant == SOLUTION]
        return None if not own or own[0].verdict is None else own[0].passed

    @property
    def proofs(self) -> tuple[VariantTrial, ...]:
        """Passes that no honest work has earned."""
        passes = (each for each in self.trials if each.variant != SOLUTION and each.passed)
        return tuple(sorted(passes, key=lambda each: each.variant))

    @property
    def tried(self) -> int:
        """Cheats that had something to work on."""
        return sum(each.variant != SOLUTION and not each.skipped for each in self.trials)

    @property
    def holds(self) -> bool:
        return not self.proofs and self.solved is not False


def audit(
    directory: Path | None,
    settings: Sequence[str],
    *,
    tasks: Sequence[str],
    cheats: Sequence[str],
    as_json: bool,
    watch: bool,
) -> int:
    """Try every cheat on every task; prints a table, or JSON.

    Args:
        tasks: patterns of names; none: all.
        cheats: names; none: all.
        watch: show the trials in the app meanwhile.

    Returns the exit status: 0 no cheat has passed and no solution has failed, 1 otherwise.

    Raises:
        UserError: bad input.
    """
    where = find_tasks(directory)
    catalog = discover(where)
    known = {task.name: task.full_name for task in catalog.require_tasks()}
    chosen = choose(known, tasks, "--task") if tasks else frozenset(known)
    with variants() as made:
        for task in catalog.tasks:
            if task.name in chosen:
                make_variants(made, task, battery(tuple(cheats)))
        view: launch.View = "app" if watch else "progress"
        status, run, trials = run_variants(made, where, settings, "audit", view)
    if run is None:
        return status
    audits = [TaskAudit(name, tuple(t for t in trials if t.task == name)) for name in known]
    audits = [each for each in audits if each.trials]
    if as_json:
        sys.stdout.write(json.dumps(document(run, audits), indent=1) + "\n")
    else:
        print_audits(run, audits)
    return 0 if all(each.holds for each in audits) else EXIT_FAILED


def make_variants(made: Variants, task: TaskInfo, cheats: Sequence[Cheat]) -> None:
    """All that is tried on a task: its solution, the cheats, and some on an impossible variant."""
    if task.has_solution:
        made.add(SOLUTION, task, partial(with_solution, script=None))
    for cheat in cheats:
        made.add(cheat.name, task, partial(with_solution, script=cheat.script(task.instruction)))
    if not task.has_solution or not can_invert(task):
        return
    made.add(IMPOSSIBLE, task, impossible)
    for cheat in cheats:
        if cheat.name in _ON_IMPOSSIBLE:
            script = cheat.script(task.instruction)
            made.add(f"{IMPOSSIBLE}-{cheat.name}", task, partial(impossible, cheat=script))


def print_audits(run: RunDirectory, audits: Sequence[TaskAudit]) -> None:
    """Print a row for each task, then each proof with how to look at it."""
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=32)
    table.add_column("solution", no_wrap=True)
    table.add_column("cheats", justify="right", no_wrap=True)
    table.add_column("passed by")
    for each in audits:
        passed = ", ".join(proof.variant for proof in each.proofs)
        own = {None: "none", True: "passes", False: "fails"}[each.solved]
        table.add_row(
            Text(visible(each.task)),
            Text(own, style="" if each.solved is not False else "red"),
            str(each.tried),
            Text(passed or "nothing", style="bold red" if passed else "green"),
        )
    console.print(table)
    console.print()
    by_variant: dict[str, list[VariantTrial]] = {}
    for proof in (proof for each in audits for proof in each.proofs):
        by_variant.setdefault(proof.variant, []).append(proof)
    for variant, found in by_variant.items():
        console.print(Text(f"{variant}: {_what(variant)}", style="bold"), soft_wrap=True)
        more = "" if len(found) == 1 else f" (and {len(found) - 1} more)"
        look = f"  {to_type('replay', run.path, found[0].trial)}{more}"
        console.print(Text(visible(look)), soft_wrap=True)
    if by_variant:
        console.print()
    bad = [each for each in audits if not each.holds]
    proofs = sum(len(each.proofs) for each in audits)
    trials = sum(len(each.trials) for each in audits)
    console.print(
        f"{len(audits) - len(bad)} of {counted(len(audits), 'task')}"
        f" {'holds' if len(audits) == 1 else 'hold'}: {counted(proofs, 'cheat')} passed in"
        f" {counted(trials, 'trial')}; recordings in {run.path}",
        soft_wrap=True,
        markup=False,
    )


def _what(variant: str) -> str:
    if variant == IMPOSSIBLE:
        return "The task's own solution passes a verifier that no honest work passes"
    after = " after the solution, and passes a verifier that no honest work passes"
    return {cheat.name: cheat.what for cheat in battery()}[
        variant.removeprefix(f"{IMPOSSIBLE}-")
    ] + (after if variant.startswith(IMPOSSIBLE) else "")


def document(run: RunDirectory, audits: Sequence[TaskAudit]) -> dict[str, Any]:
    """The audit as JSON."""
    return {
        "run": str(run.path),
        "tasks": [
            {
                "task": each.task,
                "holds": each.holds,
                "solution": each.solved,
                "trials": [
                    {
                        "variant": trial.variant,
                        "passed": trial.passed,
                        "tried": not trial.skipped,
                        "verdict": trial.verdict,
                        "outcome": trial.outcome,
                        "reason": trial.reason,
                        "trial": trial.trial,
                        "recording": None if trial.recording is None else str(trial.recording),
                    }
                    for trial in each.trials
                ],
            }
            for each in audits
        ],
    }
