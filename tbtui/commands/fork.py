"""`tbtui fork`: trials that go on from a turn of a recorded or running one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tbtui import launch
from tbtui.algorithm.turn_value import most_measured, read_turn
from tbtui.command_line import EXIT, say
from tbtui.commands.evaluate import EvaluationRun, Weights, weights_config
from tbtui.config import ConfigError, names_of, parse_settings
from tbtui.engines.grpo.checkpoint_state import LoadedCheckpoint, checkpoint_of, latest
from tbtui.engines.grpo.forks import MOST_FORKS
from tbtui.engines.grpo.origins import ForkError, Origin, read_course, read_origin
from tbtui.errors import UserError
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, find_run, is_live
from tbtui.journal.timeline import find_trial
from tbtui.view.sentences import forks_asked_line, search_line
from tbtui.vocabulary import TERMINAL_AGENTS


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """Which forks are asked for."""

    trial: str
    turn: str
    """Number of the first turn that is sampled anew; or `bisect` or `all`: values of turns."""
    trials: int
    policy: str | None = None
    checkpoint: int | None = None
    """The step whose weights go on; None: the run's latest."""
    temperature: float | None = None
    go_on: bool = False
    """Where a re-executed turn's screen differs from the recorded one."""


def fork(run: str, options: ForkOptions, settings: Sequence[str], view: launch.View) -> int:
    """Fork a trial; returns the exit status.

    Of a live run the forks are trials of that run, unless other weights or settings are asked for.
    """
    try:
        directory = find_run(run, parse_settings(settings).logs_dir)
        own = options.policy or options.checkpoint is not None or settings
        if is_live(directory) and not own:
            return _in_the_run(directory, options)
        planned = prepare_fork(directory, options, settings)
    except UserError as error:
        say(error)
        return EXIT["refused"]
    say(planned.what)
    status, _ = planned.run(view)
    return status


def _in_the_run(run: RunDirectory, options: ForkOptions) -> int:
    from tbtui.ctl.changes import change_trial
    from tbtui.ctl.options import CommandOptions

    arguments: dict[str, object] = {
        "turn": read_turn(options.turn),
        "trials": options.trials,
        "go_on": options.go_on,
    }
    if options.temperature is not None:
        arguments["temperature"] = options.temperature
    trial = find_trial(run, options.trial)
    return change_trial("fork", trial, str(run.path), CommandOptions(), arguments)


def prepare_fork(run: RunDirectory, options: ForkOptions, settings: Sequence[str]) -> EvaluationRun:
    """A run of its own for the forks. Raises `UserError`."""
    if not 1 <= options.trials <= MOST_FORKS:
        raise ForkError(f"-n {options.trials}: between 1 and {MOST_FORKS}")
    for name in ("fork_from", "eval_group_size", "eval_temperature", "eval_tasks"):
        if name in names_of(settings):
            raise ConfigError(f"{name}: tbtui fork sets it; leave it out")
    trial = find_trial(run, options.trial)
    origin, asked = _origin(run, trial, options)
    checkpoint, what = _weights(run, options)
    weights = Weights(what, checkpoint, run=run, target=str(run.path))
    of_policy = [f"policy={options.policy}"] if options.policy is not None else []
    config = weights_config(
        weights,
        [*settings, *of_policy],
        command=shlex.join(["tbtui", "fork", run.name, options.trial, "--turn", options.turn]),
    )
    if config.agent not in TERMINAL_AGENTS:
        raise ForkError(
            f"agent={config.agent}: only trials of {' and '.join(TERMINAL_AGENTS)} can be forked"
        )
    temperature = config.temperature if options.temperature is None else options.temperature
    if not 0 < temperature < float("inf"):
        raise ForkError(f"--temperature {temperature:g}: give more than 0")
    config = config.replace(
        fork_from=f"{run.path}/{trial}@{options.turn}",
        fork_go_on=options.go_on,
        eval_group_size=options.trials,
        eval_temperature=temperature,
        tasks=(),
        eval_tasks=(origin.task,),
    )
    said = f"{asked} of {run.name}, by {what}"
    return EvaluationRun(config, said, checkpoint.passed_over if checkpoint else (), "fork")


def _origin(run: RunDirectory, trial: str, options: ForkOptions) -> tuple[Origin, str]:
    """Where the first forks begin, and what is asked for in words."""
    turn = read_turn(options.turn)
    reader = JournalReader(run)
    try:
        if isinstance(turn, int):
            asked = forks_asked_line(trial, turn, options.trials)
            return read_origin(run, reader, trial, turn), asked
        turns = read_course(reader, trial).turns
        measured = most_measured(turn, turns + 1) - 1
        asked = search_line(turn, trial, turns, options.trials, measured)
        return read_origin(run, reader, trial, 1), asked
    finally:
        reader.close()


def _weights(run: RunDirectory, options: ForkOptions) -> tuple[LoadedCheckpoint | None, str]:
    if options.policy is not None:
        return None, f"policy={options.policy}"
    if options.checkpoint == 0:
        return None, "the weights that it began with"
    found = latest(run) if options.checkpoint is None else checkpoint_of(run, options.checkpoint)
    if found is None:
        return None, "the weights that it began with"
    return found, f"the weights of step {found.state.step}"
