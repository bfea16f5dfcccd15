"""Which run, and which trial: by path or by name, and never by guessing."""

from __future__ import annotations

import difflib
from pathlib import Path

from tbtui.config import RunConfig
from tbtui.ctl.reading import RunReading
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.rundir import RunDirectory, find_run, live_runs
from tbtui.paths import expanded
from tbtui.view.runs import find_live
from tbtui.view.state import GroupView, TaskView, TrialView


def choose_run(run: str | None, logs_dir: Path | None = None) -> RunDirectory:
    """The run of this path or name; None: the only live one.

    Raises:
        UserError: there is none, or several.
    """
    where = logs_dir or RunConfig().logs_dir
    if run is None:
        return _only(find_live(where), where)
    if not expanded(Path(run) / "run.db").is_file():
        named = [each for each in live_runs() if each.name == run]
        if len(named) > 1:
            raise UserError(f"{run}: several live runs are called so: {_paths(named)}")
        if named:
            return named[0]
    return find_run(run, where)


def _only(live: list[RunDirectory], where: Path) -> RunDirectory:
    if not live:
        raise UserError(
            f"no live run, of yours here or in {where}: {to_type('run', '--detach')} starts one"
        )
    if len(live) > 1:
        raise UserError(f"{len(live)} live runs, so name one: {_paths(live)}")
    return live[0]


def _paths(runs: list[RunDirectory]) -> str:
    return ", ".join(str(run.path) for run in runs)


def choose_trial(trial: str, reading: RunReading) -> TrialView:
    """The trial of this id, or of this label: a live one, else the last to have had it.

    Labels come again with every step and attempt: they are what the screen shows.

    Raises:
        UserError: there is none, or several.
    """
    state = reading.state
    if (view := state.trials.get(trial)) is not None:
        return view
    same = [each for each in state.trials.values() if each.label == trial]
    newest = max((each.step for each in same), default=0)
    labelled = [each for each in same if each.live] or [
        each for each in same if each.step == newest and each.successor is None
    ]
    if len(labelled) == 1:
        return labelled[0]
    if labelled:
        raise UserError(f"{trial}: several trials: {', '.join(t.trial for t in labelled)}")
    names = [name for name, view in state.trials.items() if view.live] or list(state.trials)
    near = difflib.get_close_matches(trial, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"see: {_list('trial', reading)}"
    raise UserError(f"{trial}: no such trial, or long gone from {state.run or 'the run'}; {hint}")


def choose_tasks(name: str, reading: RunReading) -> list[TaskView]:
    """The training task of this name, or all of the kind. Raises `UserError`."""
    state = reading.state
    train = [task for task in state.tasks.values() if task.split == "train"]
    found = [task for task in train if task.name == name]
    if found := found or [task for task in train if task.kind == name]:
        return found
    if (task := state.tasks.get(name)) is not None:
        raise UserError(f"{task.name} is held out: it is never trained on")
    raise UserError(
        f"{name}: no task or kind of that name is trained on ({_list('task', reading)})"
    )


def choose_group(group: str, reading: RunReading) -> GroupView:
    """The group of this id.

    Raises:
        UserError: there is none.
    """
    state = reading.state
    if (view := state.groups.get(group)) is not None:
        return view
    near = difflib.get_close_matches(group, state.groups, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"see: {_list('group', reading)}"
    raise UserError(f"{group}: no such group, or long gone from {state.run or 'the run'}; {hint}")


def _list(what: str, reading: RunReading) -> str:
    # Trials that are over are listed on demand.
    ended = [] if reading.live or what != "trial" else ["--ended"]
    return to_type("ctl", what, "list", "--run", reading.directory.path, *ended)
