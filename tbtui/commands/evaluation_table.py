"""An evaluation as a table for 80 columns: each task, each kind, and all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui.algorithm.evaluation import Rate, TaskAttempts, attempts, pass_rate, pass_rates
from tbtui.engines.grpo.checkpoint_state import entries_of
from tbtui.journal.events import EvalFinished, RunStarted, TrialFinished, TrialQueued, TrialRetried
from tbtui.journal.rundir import RunDirectory
from tbtui.terminal import visible

_KINDS = ("run_started", "trial_queued", "trial_finished", "trial_retried", "eval_finished")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the journal says of a run's last evaluation."""

    summary: EvalFinished
    tasks: Mapping[str, TaskAttempts]
    kinds: Mapping[str, str]
    """Task -> kind."""


def read_evaluation(directory: RunDirectory) -> Evaluation | None:
    """None: nothing was evaluated. Raises `JournalError` when the journal can't be read."""
    task_of: dict[str, str] = {}
    rewards: dict[str, float | None] = {}
    kinds: dict[str, str] = {}
    summary: EvalFinished | None = None
    for entry in entries_of(directory, _KINDS):
        match event := entry.event:
            case RunStarted():
                kinds = {task.name: task.kind or task.name for task in event.tasks}
            case TrialQueued(purpose="eval"):
                if summary is not None:  # another evaluation begins
                    task_of, rewards, summary = {}, {}, None
                task_of[event.trial] = event.task
            case TrialFinished():
                rewards[event.trial] = event.reward
            case TrialRetried():
                task_of.pop(event.trial, None)
            case EvalFinished():
                summary = event
    if summary is None:
        return None
    tried: dict[str, list[float | None]] = {}
    for trial, task in task_of.items():
        tried.setdefault(task, []).append(rewards.get(trial))
    return Evaluation(summary, {task: attempts(got) for task, got in tried.items()}, kinds)


def print_evaluation(directory: RunDirectory, what: str) -> None:
    """Print the run's last evaluation; `what` names the weights."""
    evaluation = read_evaluation(directory)
    console = Console(highlight=False)
    if evaluation is None or not (rates := pass_rates(list(evaluation.tasks.values()))):
        console.print("nothing could be evaluated", markup=False)
        return
    k = max(rates)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=30)
    table.add_column("passed", justify="right", no_wrap=True)
    for name in [f"pass@{each}" for each in sorted({1, k})]:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("95%", style="dim", no_wrap=True)
    for name, tasks, is_part in _rows(evaluation):
        label = Text(f"  {visible(name)}" if is_part else visible(name))
        style = "" if is_part else "bold"
        table.add_row(label, *_cells(tasks, k), style=style)
    console.print()
    console.print(f"{what}, at temperature {evaluation.summary.temperature:g}", markup=False)
    console.print()
    console.print(table)
    console.print()
    for line in _closing(evaluation, rates):
        console.print(line, markup=False)


def _rows(evaluation: Evaluation) -> list[tuple[str, list[TaskAttempts], bool]]:
    """(name, its tasks, whether it is part of the row above)."""
    by_kind: dict[str, dict[str, TaskAttempts]] = {}
    for task, tried in sorted(evaluation.tasks.items()):
        by_kind.setdefault(evaluation.kinds.get(task, task), {})[task] = tried
    rows: list[tuple[str, list[TaskAttempts], bool]] = []
    for kind, tasks in sorted(by_kind.items()):
        if len(tasks) > 1:
            rows.append((kind, list(tasks.values()), False))
            rows += [(task, [tried], True) for task, tried in tasks.items()]
        else:
            rows += [(task, [tried], False) for task, tried in tasks.items()]
    if len(evaluation.tasks) > 1:
        rows.append(("all", list(evaluation.tasks.values()), False))
    return rows


def _cells(tasks: Sequence[TaskAttempts], k: int) -> list[str]:
    passed, scored = sum(task.passed for task in tasks), sum(task.scored for task in tasks)
    if not scored:
        return ["unscored"]
    cells = [f"{passed}/{scored}"]
    for each in sorted({1, k}):
        rate = pass_rate(tasks, each)
        assert rate is not None
        # Of a single attempt the interval is nearly everything.
        cells += [f"{rate.value:.2f}", _interval(rate) if scored > 1 else ""]
    return cells


def _interval(rate: Rate) -> str:
    return f"{rate.low:.2f}-{rate.high:.2f}"


def _closing(evaluation: Evaluation, rates: Mapping[int, Rate]) -> list[str]:
    summary = evaluation.summary
    lines = []
    if len(rates) > 2:
        lines.append("  ".join(f"pass@{k} {rate.value:.2f}" for k, rate in _some(rates)))
    if summary.unscored:
        tasks = f", {summary.unscored_tasks} tasks altogether" if summary.unscored_tasks else ""
        lines.append(f"{summary.unscored} trials could not be scored and count nowhere{tasks}")
    first = rates[1]
    if summary.mean_reward is not None and abs(summary.mean_reward - first.value) > 0.005:
        lines.append(f"mean reward {summary.mean_reward:.2f}")
    lines.append(
        f"pass@1 {first.value:.2f} ({_interval(first)}) of {summary.scored} trials"
        f" at {len(evaluation.tasks) - summary.unscored_tasks} tasks"
    )
    return lines


def _some(rates: Mapping[int, Rate]) -> list[tuple[int, Rate]]:
    """k of 1, 2, 4, 8, ... and the largest: what fits into a line."""
    most = max(rates)
    return [(k, rate) for k, rate in rates.items() if k == most or k & (k - 1) == 0]
