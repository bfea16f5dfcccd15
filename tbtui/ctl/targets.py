"""Which run, and which trial: by path or by name, and never by guessing."""

from __future__ import annotations

import difflib
from pathlib import Path

from tbtui.config import RunConfig
from tbtui.engines.control.address import live_runs
from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory, find_run, is_live
from tbtui.journal.summaries import find_runs
from tbtui.paths import expanded
from tbtui.view.state import GroupView, RunState, TaskView, TrialView


def all_live_runs(logs_dir: Path) -> list[RunDirectory]:
    """Live runs of this user on this machine, and those in `logs_dir`; by name."""
    runs = {run.path: run for run in live_runs()}
    for run in past_runs(logs_dir):
        if is_live(run):
            runs[run.path] = run
    return sorted(runs.values(), key=lambda run: (run.name, run.path))


def past_runs(logs_dir: Path) -> list[RunDirectory]:
    """All runs in `logs_dir`, live ones too; by name."""
    return sorted(find_runs([logs_dir]), key=lambda run: run.path)


def choose_run(run: str | None, logs_dir: Path | None = None) -> RunDirectory:
    """The run of this path or name; None: the only live one.

    Raises:
        UserError: there is none, or several.
    """
    where = logs_dir or RunConfig().logs_dir
    if run is None:
        return _only(all_live_runs(where), where)
    if not expanded(Path(run) / "run.db").is_file():
        named = [each for each in live_runs() if each.name == run]
        if len(named) > 1:
            raise UserError(f"{run}: several live runs are called so: {_paths(named)}")
        if named:
            return named[0]
    return find_run(run, where)


def _only(live: list[RunDirectory], where: Path) -> RunDirectory:
    if not live:
        raise UserError(f"no live run, of yours here or in {where}: tbtui run --detach starts one")
    if len(live) > 1:
        raise UserError(f"{len(live)} live runs, so name one: {_paths(live)}")
    return live[0]


def _paths(runs: list[RunDirectory]) -> str:
    return ", ".join(str(run.path) for run in runs)


def choose_trial(trial: str, state: RunState) -> TrialView:
    """The trial of this id, or of this label if only one live trial has it.

    Raises:
        UserError: there is none, or several.
    """
    if (view := state.trials.get(trial)) is not None:
        return view
    labelled = [each for each in state.trials.values() if each.label == trial and each.live]
    if len(labelled) == 1:
        return labelled[0]
    if labelled:
        raise UserError(f"{trial}: several trials: {', '.join(t.trial for t in labelled)}")
    names = [name for name, view in state.trials.items() if view.live] or list(state.trials)
    near = difflib.get_close_matches(trial, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "see: tbtui ctl trial list"
    raise UserError(f"{trial}: no such trial, or long gone from {state.run or 'the run'}; {hint}")


def choose_tasks(name: str, state: RunState) -> list[TaskView]:
    """The training task of this name, or all of the kind. Raises `UserError`."""
    train = [task for task in state.tasks.values() if task.split == "train"]
    found = [task for task in train if task.name == name]
    if found := found or [task for task in train if task.kind == name]:
        return found
    if (task := state.tasks.get(name)) is not None:
        raise UserError(f"{task.name} is held out: it is never trained on")
    raise UserError(f"{name}: no task or kind of that name is trained on (tbtui ctl task list)")


def choose_group(group: str, state: RunState) -> GroupView:
    """The group of this id.

    Raises:
        UserError: there is none.
    """
    if (view := state.groups.get(group)) is not None:
        return view
    near = difflib.get_close_matches(group, state.groups, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "see: tbtui ctl group list"
    raise UserError(f"{group}: no such group, or long gone from {state.run or 'the run'}; {hint}")
