"""`tbtui bisect`: the checkpoints of a run between which a task was won or lost.

Each checkpoint that it looks at is evaluated by a run of its own, whose name follows from what was
asked: asked again, it goes on where it was interrupted, and what is known is not tried again.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from tbtui import launch
from tbtui.algorithm.evaluation import TaskAttempts, pass_rate
from tbtui.algorithm.turn_value import TurningPoint, most_measured, next_place, turning_point
from tbtui.command_line import EXIT, say
from tbtui.commands.evaluate import (
    EvaluationRun,
    Weights,
    read_evaluation,
    require_tasks,
    weights_config,
)
from tbtui.config import ConfigError, names_of, parse_settings
from tbtui.engines.grpo.checkpoint_state import (
    CheckpointError,
    checkpoint_of,
    newest_first,
    step_of,
)
from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory, find_run

_OURS = ("eval_tasks", "eval_group_size", "tasks", "run_name", "checkpoint")
MOST_TRIALS = 1024


@dataclass(frozen=True, slots=True)
class Bisection:
    """What is looked for."""

    run: RunDirectory
    task: str
    trials: int
    """Trials of each checkpoint."""
    settings: tuple[str, ...]
    steps: tuple[int, ...]
    """Those that have a checkpoint, ascending."""


def bisect(run: str, task: str, trials: int, settings: Sequence[str], *, as_json: bool) -> int:
    """Evaluate checkpoints until two neighbours with a change between them are found.

    Returns the exit status: as `launch`.
    """
    tried: dict[int, TaskAttempts] = {}
    try:
        wanted = _prepare(run, task, trials, settings)
        places = len(wanted.steps)
        most = most_measured("bisect", places) * trials
        say(f"bisection over {places} checkpoints of {wanted.run.name}: at most {most} trials")
        while True:
            known = {at: each.passed / each.scored for at, each in tried.items() if each.scored}
            place = next_place("bisect", places, known)
            if place is None or place in tried:
                break
            status, found = _evaluate(wanted, wanted.steps[place - 1])
            if found is None:
                if status != EXIT["refused"]:
                    say(f"go on with: {shlex.join(['tbtui', 'bisect', run, task, *settings])}")
                return status
            tried[place] = found
            if not as_json:
                typer.echo(_row(wanted.steps[place - 1], found))
    except UserError as error:
        say(error)
        return EXIT["refused"]
    point = turning_point(known)
    if as_json:
        typer.echo(json.dumps(_as_json(wanted, tried, point)))
    else:
        typer.echo(_conclusion(wanted, tried, point))
    return EXIT["finished"]


def _prepare(run: str, task: str, trials: int, settings: Sequence[str]) -> Bisection:
    for name in _OURS:
        if name in names_of(settings):
            raise ConfigError(f"{name}: tbtui bisect sets it; leave it out")
    if not 1 <= trials <= MOST_TRIALS:
        raise ConfigError(f"-n {trials}: between 1 and {MOST_TRIALS}")
    directory = find_run(run, parse_settings(settings).logs_dir)
    saved = newest_first(directory) if directory.checkpoints.is_dir() else []
    steps = sorted(map(step_of, saved))
    if len(steps) < 2:
        raise CheckpointError(
            f"{directory.name} has {len(steps)} checkpoints, and a bisection needs two:"
            " save_every= and keep_checkpoints= say which are kept"
        )
    wanted = Bisection(directory, task, trials, tuple(settings), tuple(steps))
    require_tasks(_evaluation(wanted, steps[0]).config)
    return wanted


def _evaluation(wanted: Bisection, step: int) -> EvaluationRun:
    loaded = checkpoint_of(wanted.run, step)
    what = f"step {step} of {wanted.run.name}"
    config = weights_config(
        Weights(what, loaded, run=wanted.run, target=str(wanted.run.path)),
        wanted.settings,
        command=shlex.join(["tbtui", "bisect", wanted.run.name, wanted.task]),
    )
    asked = json.dumps([str(wanted.run.path), wanted.task, wanted.trials, wanted.settings])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:8]
    config = config.replace(
        eval_tasks=(wanted.task,),
        tasks=(),
        eval_group_size=wanted.trials,
        run_name=f"bisect-{wanted.run.name}-{digest}-{step:06d}",
    )
    return EvaluationRun(config, what, loaded.passed_over, "bisect")


def _evaluate(wanted: Bisection, step: int) -> tuple[int, TaskAttempts | None]:
    """The exit status, and what came of it; None: it has not finished."""
    evaluation = _evaluation(wanted, step)
    assert evaluation.config.run_name is not None
    path = evaluation.config.logs_dir / evaluation.config.run_name
    begun = RunDirectory(path.resolve())
    if begun.database.is_file():
        if (known := _read(begun)) is not None:
            return EXIT["finished"], known
        status = launch.resume(str(begun.path), [], "progress")
        return status, _read(begun) if status == EXIT["finished"] else None
    status, directory = evaluation.run("progress")
    return status, _read(directory) if directory is not None else None


def _read(directory: RunDirectory) -> TaskAttempts | None:
    evaluation = read_evaluation(directory)
    return next(iter(evaluation.tasks.values()), None) if evaluation is not None else None


def _row(step: int, tried: TaskAttempts) -> str:
    rate = pass_rate([tried], 1)
    if rate is None:
        return f"step {step:<6} none of its trials could be scored"
    interval = f"95% interval {rate.low:.0%} to {rate.high:.0%}"
    return f"step {step:<6} {tried.passed} of {tried.scored} solved, {rate.value:.0%} ({interval})"


def _conclusion(
    wanted: Bisection, tried: dict[int, TaskAttempts], point: TurningPoint | None
) -> str:
    if point is not None:
        what = "lost" if point.lost else "won"
        steps = f"step {wanted.steps[point.place - 1]} and step {wanted.steps[point.place]}"
        change = f"{point.before:.0%} before, {point.after:.0%} after"
        return f"{wanted.task} was {what} between {steps}: {change}"
    unscored = [wanted.steps[place - 1] for place, each in tried.items() if not each.scored]
    if unscored:
        return f"step {unscored[0]} could not be scored: no conclusion"
    return f"{wanted.task}: no change between step {wanted.steps[0]} and step {wanted.steps[-1]}"


def _as_json(
    wanted: Bisection, tried: dict[int, TaskAttempts], point: TurningPoint | None
) -> dict[str, object]:
    rows = []
    for place, each in sorted(tried.items()):
        rate = pass_rate([each], 1)
        rows.append(
            {
                "step": wanted.steps[place - 1],
                "passed": each.passed,
                "scored": each.scored,
                "low": rate.low if rate is not None else None,
                "high": rate.high if rate is not None else None,
            }
        )
    turned = None
    if point is not None:
        turned = {"from": wanted.steps[point.place - 1], "to": wanted.steps[point.place]}
    return {
        "run": str(wanted.run.path),
        "task": wanted.task,
        "trials": wanted.trials,
        "checkpoints": rows,
        "turning_point": turned,
    }
