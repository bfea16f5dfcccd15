"""`tbtui tasks try`: one trial of one task by hand. Nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import typer

from tbtui import launch
from tbtui.catalog import DEFAULT, CatalogError, find_tasks, named_tasks, nearest
from tbtui.catalog.tasks import TaskInfo, discover
from tbtui.command_line import EXIT, say
from tbtui.commands.evaluate import prepare_evaluation
from tbtui.config import parse_settings
from tbtui.errors import UserError
from tbtui.journal.events import TrialFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import expanded
from tbtui.terminal import visible
from tbtui.view.waiting import duration

_OUTPUT_LINES = 12
"""Characters of what the verifier said, for a trial that did not pass."""
_MOST_READ = 64 * 1024
"""Bytes of a file's end."""
_OURS = ("eval_tasks", "eval_group_size", "tasks")
"""Settings that say what is attempted and how often, which `try` does itself."""


def try_task(task: str, arguments: Sequence[str], *, oracle: bool, view: launch.View) -> int:
    """Run one trial with a run's or a checkpoint's weights, the starting ones, or the solution.

    Args:
        task: a directory, a name, or `DATASET/NAME`.
        arguments: as of `tbtui eval`: a run or a checkpoint directory, if any; then settings.

    Returns the exit status: 0 the trial has a reward, whatever it is; else as `launch`'s.
    """
    try:
        found = find_task(task, arguments)
        evaluation = prepare_evaluation(
            [*arguments, *_settings(found, arguments, oracle)], use_latest=False, stem="try"
        )
    except UserError as error:
        say(error)
        return EXIT["refused"]
    status, directory = evaluation.run(view)
    if directory is None or view == "json":
        return status
    who = "the oracle" if oracle else evaluation.what
    return status if _print_end(found, who, directory, oracle=oracle) else EXIT_NO_REWARD


EXIT_NO_REWARD = 1


def _settings(task: TaskInfo, arguments: Sequence[str], oracle: bool) -> list[str]:
    names = {argument.partition("=")[0] for argument in arguments}
    for name in _OURS:
        if name in names:
            raise CatalogError(f"{name}: one trial of {task.name} is what is tried; leave it out")
    # Nothing but its own directory is read, unless another is asked for: its short name is enough.
    name = task.name if "tasks_dir" in names else task.short_name
    settings = [f"eval_tasks={name}", "eval_group_size=1", "max_retries=0", "n_workers=1"]
    settings.append("quarantine=ignore")
    settings += ["agent=oracle"] if oracle else []
    if "tasks_dir" not in names:
        settings.append(f"tasks_dir={task.path}")
    return [setting for setting in settings if setting.partition("=")[0] not in names]


def find_task(task: str, arguments: Sequence[str]) -> TaskInfo:
    """The task of this directory, name or `DATASET/NAME`.

    Raises `UserError` when there is none, or more than one."""
    file = expanded(Path(task) / "task.toml")
    if file.is_file():
        return discover(file.parent).require_tasks()[0]
    if any(argument.startswith("tasks_dir=") for argument in arguments):
        given = parse_settings([each for each in arguments if each.startswith("tasks_dir=")])
        return discover(find_tasks(given.tasks_dir)).task(task)
    dataset, slash, name = task.rpartition("/")
    if slash:
        return discover(find_tasks(Path(dataset))).task(name)
    places = named_tasks()
    first = {DEFAULT: places[DEFAULT]} if DEFAULT in places else {}
    catalogs = {name: discover(where) for name, where in (first | places).items()}
    having = [name for name, catalog in catalogs.items() if task in _names(catalog.tasks)]
    if len(having) > 1:
        ways = " or ".join(f"{name}/{task}" for name in having)
        raise CatalogError(f"task {task!r} is in several data sets: give {ways}")
    if having:
        return catalogs[having[0]].task(task)
    known = [name for catalog in catalogs.values() for name in _names(catalog.tasks)]
    raise CatalogError(
        f"no task {task!r} in {', '.join(catalogs)}{nearest(task, known)}"
        " (give a directory, DATASET/NAME, or tasks_dir=)"
    )


def _names(tasks: Sequence[TaskInfo]) -> list[str]:
    return [task.short_name for task in tasks]


def _print_end(task: TaskInfo, who: str, run: RunDirectory, *, oracle: bool) -> bool:
    """The result in words; whether there is a reward."""
    with closing(JournalReader(run)) as reader:
        entries = reader.read_kinds(["trial_finished"], 0)
    ends = [entry.event for entry in entries if isinstance(entry.event, TrialFinished)]
    if not ends:
        typer.echo(f"{task.name} by {who}: no trial has ended")
        return False
    end = ends[-1]
    seconds = end.seconds
    worked = seconds.setup + seconds.sampling + seconds.commands
    reward = "no reward" if end.reward is None else f"reward {end.reward:g}"
    # What a task's own solution earns is its best, whether or not that is 1.
    partly = oracle and end.reward is not None and 0 < end.reward < 1
    typer.echo(f"{task.name} by {who}: {reward if partly else f'{end.outcome}, {reward}'}")
    verified = not end.turns and end.verdict is not None
    how = "ran to its end" if verified else visible(end.reason)
    typer.echo(f"  {how} · agent {duration(worked)}, verifier {duration(seconds.verifying)}")
    if (end.reward or 0) < 1:
        if oracle:
            for line in _solution_lines(run.trials / end.trial / "agent"):
                typer.echo(f"  solution: {visible(line)}")
        for line in end.verifier_output.rstrip().splitlines()[-_OUTPUT_LINES:]:
            typer.echo(f"  verifier: {visible(line)}")
    typer.echo(f"  files: {run.trials / end.trial}")
    return end.reward is not None


def _solution_lines(agent_dir: Path) -> Iterator[str]:
    """Lines on how the solution ended, where that is known, and the end of its output."""
    # Harbor's oracle writes the first file only where the exit status isn't 0.
    code = _tail(agent_dir / "exit-code.txt")
    yield f"exit status {code[-1]}" if code else "exit status 0"
    yield from _tail(agent_dir / "oracle.txt")[-_OUTPUT_LINES:]


def _tail(file: Path) -> list[str]:
    """The last lines of a file that a trial has written; none where it can't be read."""
    try:
        if not file.is_file():
            return []
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _MOST_READ))
            text = opened.read(_MOST_READ).decode(errors="replace").rstrip()
    except OSError:
        return []
    return text.split("\n") if text else []
