"""`tbtui eval`: evaluates weights on held-out tasks, without training them.

It is a run of no steps from a checkpoint, with the settings of the run that the checkpoint is of.
The checkpoint of a model behind a server lies on the server; the directory says where.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui import launch
from tbtui.algorithm.evaluation import Rate, TaskAttempts, attempts, pass_rate, pass_rates
from tbtui.catalog import find_tasks
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import CatalogError, discover
from tbtui.command_line import EXIT, say
from tbtui.config import (
    ConfigError,
    RunConfig,
    is_file,
    names_of,
    names_typed,
    parse_run_settings,
    parse_settings,
)
from tbtui.config.trust import require_trusted
from tbtui.engines.grpo.checkpoint_state import (
    STATE_FILE,
    CheckpointError,
    LoadedCheckpoint,
    best,
    entries_of,
    latest,
    load_checkpoint,
)
from tbtui.engines.request import ON_SERVER
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.events import (
    EvalFinished,
    RunStarted,
    TasksSetAside,
    TrialFinished,
    TrialQueued,
    TrialRetried,
)
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, find_run, reserve
from tbtui.paths import expanded
from tbtui.terminal import counted, visible
from tbtui.view.sentences import HeldOut

_NEVER_TRAINS: dict[str, Any] = {"max_steps": 0, "n_epochs": None, "eval_every": 0, "save_every": 0}
_TRACKERS: dict[str, Any] = {
    "wandb_project": None,
    "wandb_name": None,
    "trackio_project": None,
    "tensorboard": False,
}
"""A training run's are not this one's."""
_MODEL = (
    "policy",
    "model_name",
    "tinker_base_url",
    "lora_rank",
    "context_limit",
    "tokenizer",
    "renderer",
    "thinking",
)
_ADAPTER = ("lora_alpha", "lora_targets", "dtype")
"""What the weights of a model trained here depend on besides."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights, and the run that they are of."""

    what: str
    """What is evaluated, in words."""
    checkpoint: LoadedCheckpoint | None = None
    on_server: str | None = None
    """`tinker://...`, where they are in no directory."""
    run: RunDirectory | None = None
    """The run that they are of."""
    target: str = ""
    """What was typed."""


def evaluate(arguments: Sequence[str], *, use_latest: bool, view: launch.View) -> int:
    """Evaluate a run's or a directory's checkpoint, or the starting weights; prints a table.

    Args:
        arguments: first a run or a checkpoint directory, if any; then settings.
        use_latest: of a run the latest checkpoint, not the one with the best pass rate.
        view: of the run meanwhile; with `json` there are its events and no table.

    Returns the exit status: as `launch`; that of a failure, too, where nothing could be scored.
    """
    try:
        evaluation = prepare_evaluation(arguments, use_latest=use_latest)
    except UserError as error:
        say(error)
        return EXIT["refused"]
    status, directory = evaluation.run(view)
    if directory is None:
        return status
    if view != "json":
        print_evaluation(directory, evaluation.what)
    if (reason := why_unscored(directory)) is not None:
        say(f"nothing could be evaluated{reason}")
        return EXIT["failed"]
    return status


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A run of no steps, which only evaluates. (`Evaluation` has the settings of any run.)"""

    config: RunConfig
    what: str
    """Which weights, for a person."""
    passed_over: tuple[str, ...]
    """Checkpoints that can't be used, and why."""
    stem: str
    """What the run's name begins with, if none is given."""

    def run(self, view: launch.View) -> tuple[int, RunDirectory | None]:
        """The exit status, which is `launch`'s, and where the run is if it has finished."""
        for passed_over in self.passed_over:
            say(f"passed over: {passed_over}")
        config, is_new = self.config, not self.config.logs_dir.exists()
        if config.run_name is None:
            name = f"{self.stem}-{datetime.datetime.now():%Y-%m-%d-%H%M%S}"
            try:
                config = config.replace(run_name=reserve(config.logs_dir, name).name)
            except RunDirectoryError as error:
                say(error)
                return EXIT["refused"], None
        assert config.run_name is not None
        path = config.logs_dir / config.run_name
        status = launch.launch(config, view)
        if status == EXIT["refused"]:
            # As refused runs do, it leaves nothing; what isn't empty stays.
            with contextlib.suppress(OSError):
                path.rmdir()
            with contextlib.suppress(OSError):
                if is_new:
                    config.logs_dir.rmdir()
        return status, RunDirectory(path.resolve()) if status == EXIT["finished"] else None


def prepare_evaluation(
    arguments: Sequence[str], *, use_latest: bool, stem: str = "eval"
) -> EvaluationRun:
    """Read the arguments of `tbtui eval`. Raises `UserError`.

    `stem`: what the run's name begins with, if none is given.
    """
    target, settings = _divide(arguments)
    weights = weights_of(target, settings, use_latest=use_latest)
    config = weights_config(weights, settings)
    require_tasks(config)
    passed_over = tuple(weights.checkpoint.passed_over) if weights.checkpoint else ()
    return EvaluationRun(config, weights.what, passed_over, stem)


def _divide(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split arguments into what to evaluate, if given, and settings. A run's name may have `=`."""
    first, *others = arguments or ["="]
    if is_file(first):
        return None, list(arguments)
    # os.path: of a text that no path can have, too.
    if "=" in first and not any(
        os.path.isdir(place / first)  # noqa: PTH112
        for place in (Path(), parse_settings(others).logs_dir)
    ):
        return None, list(arguments)
    return first, others


def weights_of(target: str | None, settings: Sequence[str], *, use_latest: bool) -> Weights:
    """The weights that a run, a checkpoint or `checkpoint=` names. Raises `UserError`."""
    given = parse_settings(settings)
    if target is None:
        if use_latest:
            raise ConfigError(f"--latest is of a run: {to_type('eval', 'RUN', '--latest')}")
        where = f"checkpoint {given.checkpoint}" if given.checkpoint else "the starting weights"
        return Weights(where)
    if given.checkpoint:
        raise ConfigError(f"checkpoint={given.checkpoint}: {target} says what to evaluate already")
    if target.startswith(ON_SERVER):
        if use_latest:
            raise ConfigError(f"--latest is of a run, and {target} is none")
        return Weights(f"checkpoint {target}", on_server=target)
    path = expanded(target)
    is_run = any(expanded(each / "run.db").is_file() for each in (path, given.logs_dir / path))
    if path.is_dir() and not is_run:
        if use_latest:
            raise ConfigError(f"--latest is of a run, and {target} is none (run.db is missing)")
        loaded = LoadedCheckpoint(path.resolve(), load_checkpoint(path))
        return Weights(f"checkpoint {target}", loaded, run=_run_of(loaded.path), target=target)
    run = find_run(target, given.logs_dir)
    if run.config.is_file():
        _require_own(parse_settings([], files=[run.config]), run.name)
    found = latest(run) if use_latest else best(run)
    if found is None:
        hint = "" if use_latest or latest(run) is None else "; for its latest one, give --latest"
        which = "no checkpoint" if not hint else "no checkpoint that was evaluated"
        raise CheckpointError(f"{run.name} has {which}{hint}")
    which = "latest" if use_latest else "best"
    what = f"step {found.state.step} of {run.name}, its {which} checkpoint"
    return Weights(what, found, run=run, target=target)


def _run_of(checkpoint: Path) -> RunDirectory | None:
    """The run in whose directory a checkpoint is."""
    run = RunDirectory(checkpoint.parent.parent)
    return run if run.database.is_file() and run.checkpoints == checkpoint.parent else None


def weights_config(weights: Weights, settings: Sequence[str], command: str = "") -> RunConfig:
    """The settings of a run of no steps with these weights: their run's, and `settings` over them.

    `command`: how it was asked for; empty: as an evaluation. Raises `ConfigError`.
    """
    names = names_of(settings)
    for name in sorted(names & _NEVER_TRAINS.keys()):
        raise ConfigError(f"{name}: an evaluation takes no training steps; leave it out")
    files = [weights.run.config] if weights.run and weights.run.config.is_file() else []
    own: list[str] = []
    changes = dict(_NEVER_TRAINS)
    if not files:
        own = [setting for setting in _of_the_model(weights) if setting.split("=")[0] not in names]
    else:
        changes |= {name: value for name, value in _TRACKERS.items() if name not in names}
    if weights.run and "logs_dir" not in names:
        changes["logs_dir"] = weights.run.path.parent
    kept = weights.run.agent_examples if weights.run else None
    if kept and "agent_examples" not in names and kept.is_file() and not kept.is_symlink():
        changes["agent_examples"] = str(kept)  # not others of the same seed
    if weights.checkpoint:
        changes["checkpoint"] = str(weights.checkpoint.path)
    if weights.on_server:
        changes["checkpoint"] = weights.on_server
    if "run_name" not in names:
        changes["run_name"] = None  # the training run's
    command = command or shlex.join(filter(None, ("tbtui", "eval", weights.target)))
    if files:
        config = parse_run_settings(files[0], (), settings, command=command, replaced=changes)
    else:
        if own and weights.checkpoint is not None:
            said = weights.checkpoint.state.settings
            where = weights.checkpoint.path / STATE_FILE
            of_model = {name: said.get(name) for name in _MODEL}
            require_trusted(of_model, where, names_typed(settings), command)
        config = parse_settings([*own, *settings])
    config = config.replace(**changes)
    _require_own(config, "engine=prime-rl")
    return config


def _require_own(config: RunConfig, what: str) -> None:
    if config.engine == "prime-rl":
        raise ConfigError(
            f"{what}: a model of Prime-RL's is evaluated where it is served: serve its checkpoint"
            " with vLLM, and give policy=vllm, model_name and vllm_base_url"
        )


def _of_the_model(weights: Weights) -> list[str]:
    """The settings that weights depend on whose run is not at hand."""
    if weights.on_server:
        return ["policy=tinker"]
    if weights.checkpoint is None or weights.checkpoint.state.policy == "local":
        return []  # there is one such model
    values = weights.checkpoint.state.settings
    names = (*_MODEL, *_ADAPTER) if weights.checkpoint.state.policy == "torch" else _MODEL
    return [f"{name}={_typed(values[name])}" for name in names if values.get(name) is not None]


def _typed(value: object) -> str:
    """A JSON-like value as it is typed on a command line."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def require_tasks(config: RunConfig) -> None:
    """Refuse an evaluation of no task before anything is started. Raises `UserError`."""
    where = find_tasks(config.tasks_dir)
    split = split_tasks(
        discover(where).require_tasks(),
        eval_split=config.eval_split,
        seed=config.seed,
        eval_tasks=config.eval_tasks,
        trains=False,
    )
    if not split.heldout:
        raise CatalogError(
            f"{where}: no task is held out; name some with eval_tasks=, or a share with eval_split="
        )


_KINDS = ("run_started", "trial_queued", "trial_finished", "trial_retried", "eval_finished")


@dataclass(frozen=True, slots=True)
class LastEvaluation:
    """A run's last evaluation, by its journal."""

    summary: EvalFinished
    tasks: Mapping[str, TaskAttempts]
    kinds: Mapping[str, str]
    """Task -> kind."""


def read_evaluation(directory: RunDirectory) -> LastEvaluation | None:
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
    return LastEvaluation(summary, {task: attempts(got) for task, got in tried.items()}, kinds)


def why_unscored(directory: RunDirectory) -> str | None:
    """The commonest reason for which nothing of a run was scored, to go on with a line; None:
    something was."""
    reasons: list[str] = []
    for entry in entries_of(directory, ("trial_finished", "tasks_set_aside", "eval_finished")):
        match event := entry.event:
            case EvalFinished() if event.scored:
                return None
            case TrialFinished():
                reasons.append(f"{event.outcome}: {event.reason}")
            case TasksSetAside(by="preflight"):
                reasons += event.tasks.values()
    if not reasons:
        return ""
    (reason, times), *_ = Counter(reasons).most_common(1)
    return f"; the reason of {times} of {len(reasons)}: {reason}"


def print_evaluation(directory: RunDirectory, what: str) -> None:
    """Print the run's last evaluation, if anything was scored; `what` names the weights."""
    evaluation = read_evaluation(directory)
    console = Console(highlight=False)
    if evaluation is None or not (rates := pass_rates(list(evaluation.tasks.values()))):
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
    temperature = evaluation.summary.temperature
    console.print(f"{visible(what)}, at temperature {temperature:g}", markup=False)
    console.print()
    console.print(table)
    console.print()
    for line in _closing(evaluation, rates):
        console.print(line, markup=False)


def _rows(evaluation: LastEvaluation) -> list[tuple[str, list[TaskAttempts], bool]]:
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
        # The interval of a single attempt is nearly the whole range.
        cells += [f"{rate.value:.2f}", _interval(rate) if scored > 1 else ""]
    return cells


def _interval(rate: Rate) -> str:
    return f"{rate.low:.2f}-{rate.high:.2f}"


def _closing(evaluation: LastEvaluation, rates: Mapping[int, Rate]) -> list[str]:
    summary = evaluation.summary
    lines = []
    if len(rates) > 2:
        lines.append("  ".join(f"pass@{k} {rate.value:.2f}" for k, rate in _some(rates)))
    if summary.unscored:
        whole = summary.unscored_tasks
        tasks = f", {counted(whole, 'task')} altogether" if whole else ""
        trials = counted(summary.unscored, "trial")
        lines.append(f"not scored, and counted nowhere: {trials}{tasks}")
    first = rates[1]
    if summary.mean_reward is not None and abs(summary.mean_reward - first.value) > 0.005:
        lines.append(f"mean reward {summary.mean_reward:.2f}")
    if (harbor := HeldOut.of(summary).harbor_rate) is not None:
        lines.append(f"{harbor:.2f} as Harbor counts: by verdicts alone, however a trial ended")
    tried = sum(task.scored > 0 for task in evaluation.tasks.values())
    lines.append(
        f"pass@1 {first.value:.2f} ({_interval(first)}) of {counted(summary.scored, 'trial')}"
        f" at {counted(tried, 'task')}"
    )
    return lines


def _some(rates: Mapping[int, Rate]) -> list[tuple[int, Rate]]:
    """k of 1, 2, 4, 8, ... and the largest: what fits into a line."""
    most = max(rates)
    return [(k, rate) for k, rate in rates.items() if k == most or k & (k - 1) == 0]
