"""Takes up an interrupted run: the newest checkpoint, and the rest from its journal alone.

A step that was trained after the checkpoint is trained again on the rollouts that the journal has
of it. In a batch that was not trained yet, finished trials keep their outcome, and trials that were
under way start again from the same seed. So no finished trial is lost, none counts twice, and with
a policy that computes the same from the same the run goes on as if nothing had happened.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import socket
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tbtui.algorithm.curriculum import PassRates
from tbtui.catalog.split import Split
from tbtui.config import RunConfig, to_json
from tbtui.engines.events_of import task_records
from tbtui.engines.grpo.checkpoint_state import (
    CheckpointError,
    LoadedCheckpoint,
    latest,
    load_checkpoint,
    require_same_settings,
    sweep,
)
from tbtui.engines.grpo.forks import fork_group
from tbtui.engines.grpo.history import read_history
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, outcome_policy
from tbtui.engines.grpo.plan import evaluation_groups, training_groups
from tbtui.engines.grpo.recorded import (
    POLICY_LOST_FIRST,
    RUN_WAS_KILLED,
    RecordedAttempt,
    RecordedBatch,
    RecordedPlace,
    StartingPoint,
    cut_off,
)
from tbtui.engines.grpo.rollouts import GroupPlan, trial_plan
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.resume import keep_settings
from tbtui.errors import UserError
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    CommandDone,
    Noted,
    Outcome,
    RunContinued,
    RunPaused,
    RunResumed,
    RunStarted,
    TasksSetAside,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy
from tbtui.terminal import one_line
from tbtui.view.state import RunState


async def continue_run(
    prepared: PreparedRun,
    policy: Policy,
    journal: JournalWriter,
    reader: JournalReader,
    started: RunStarted,
    *,
    policy_lost: bool = False,
) -> StartingPoint:
    """Load the newest checkpoint into `policy` and journal how the run goes on.

    Args:
        policy: has started, with the weights that the run began with.
        reader: stays open as long as the starting point is used.
        started: what is journalled where the first part ended before it could say so itself.
        policy_lost: the process goes on with a new policy. A run that is paused stays so then; a
            run that a person resumes goes on.

    Raises:
        CheckpointError: it belongs to another model or other settings.
        UserError: the tasks are not those that the run began with.
        PolicyError: the policy can't load it.
    """
    directory, config = prepared.directory, prepared.config
    checkpoint, notes = newest(prepared)
    step = version = 0
    if checkpoint is not None:
        state = load_checkpoint(checkpoint.path, policy.info)
        require_same_settings(state, config)
        await policy.load(checkpoint.path)
        step, version = state.step, state.weights_version
    recovery = recover(reader, prepared.split, config, step, version, stays_paused=policy_lost)
    if not recovery.started:
        journal.append(started)
    journal.append(_event(prepared, recovery, checkpoint.path if checkpoint else None))
    keep_settings(directory, config)
    for note in notes:
        journal.append(Noted(level="warning", text=note))
    if checkpoint is None and recovery.replayed:
        text = f"no checkpoint: all {len(recovery.replayed)} steps are trained again"
        journal.append(Noted(level="warning", text=text))
    recovery.close_gaps(journal, reader, POLICY_LOST_FIRST if policy_lost else RUN_WAS_KILLED)
    unusable = prepared.unusable
    if policy_lost or unusable.keys() == recovery.start.left_out:
        return recovery.start
    # Another environment, or other packages: what turned out in trials may be otherwise too.
    journal.append(TasksSetAside.of(unusable, "preflight"))
    return dataclasses.replace(recovery.start, unusable=unusable)


def newest(prepared: PreparedRun) -> tuple[LoadedCheckpoint | None, tuple[str, ...]]:
    """The checkpoint to go on from, and what is wrong with newer ones."""
    sweep(prepared.directory)
    try:
        checkpoint = latest(prepared.directory)
    except CheckpointError as error:
        # Nothing is lost with the weights but the time to train them again.
        return None, (str(error),)
    return checkpoint, checkpoint.passed_over if checkpoint else ()


def _event(prepared: PreparedRun, recovery: Recovery, checkpoint: Path | None) -> RunContinued:
    return RunContinued(
        pid=os.getpid(),
        host=socket.gethostname(),
        tbtui_version=importlib.metadata.version("tbtui"),
        harbor_version=importlib.metadata.version("harbor"),
        checkpoint=str(checkpoint.relative_to(prepared.directory.path)) if checkpoint else None,
        step=recovery.start.step,
        replayed=recovery.replayed,
        reused=recovery.reused,
        requeued=recovery.requeued,
        settings=to_json(prepared.config),
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """How an interrupted run goes on."""

    start: StartingPoint
    started: bool
    """The journal has the run's `RunStarted`: it got as far as that."""
    replayed: tuple[int, ...]
    """Steps that are trained again."""
    reused: int
    """Finished trials of batches and evaluations that had not finished."""
    requeued: tuple[str, ...]
    """Trials that were under way, and start again as the next attempt."""
    _run: RunState

    def close_gaps(self, journal: JournalWriter, reader: JournalReader, why: str) -> None:
        """Write the ends that were not written then: nothing looks as if it still ran.

        `why`: one of `CUT_OFF`.
        """
        last = reader.last_seq()
        run = self._run
        for view in run.live_trials():
            journal.append(cut_off(view.trial, why, reader.sampled(view.trial, last + 1)))
        for command in run.pending:
            journal.append(CommandDone(command=command, ok=False, result=why))
        if run.paused:
            journal.append(RunPaused() if self.start.paused else RunResumed())


def recover(
    reader: JournalReader,
    split: Split,
    config: RunConfig,
    step: int = 0,
    weights_version: int = 0,
    *,
    stays_paused: bool = False,
) -> Recovery:
    """The starting point after the checkpoint of `step` (0: none, the starting weights).

    With `stays_paused` a run that was paused still is.

    `reader` is read later, too: a rollout's tokens are loaded each time its place is looked up, so
    that no more of them are in memory than the batches under way have.

    Raises:
        UserError: the tasks are not those that the run began with.
        JournalError: the journal doesn't agree with itself.
    """
    start = StartingPoint(step, weights_version, rates=PassRates(config.task_half_life))
    run = read_history(reader, start)
    start.paused = start.paused and stays_paused
    started = run.started_at is not None
    if started:
        _require_same_tasks(run, split)
    outcomes = outcome_policy(config.on_outcome)
    tasks = {task.name: task for task in (*split.train, *split.honeypots)}
    _require_known(start.tasks_taken, tasks)
    start.batches = dict(sorted(start.batches.items()))
    start.evaluations = dict(sorted(start.evaluations.items()))
    for number, batch in start.batches.items():
        _require_known(batch.groups.values(), tasks)
        groups = training_groups([tasks[name] for name in batch.groups.values()], number, config)
        _settle(batch, groups, start, reader, outcomes, config.max_retries)
    for number, batch in start.evaluations.items():
        groups = evaluation_groups(split.heldout, number, config)
        _settle(batch, groups, start, reader, outcomes, config.max_retries)
    every = {task.name: task for task in (*split.train, *split.heldout, *split.unused)}
    for forks in start.forks.values():
        if (task := every.get(forks.started.task)) is not None:
            places = [fork_group(None, task, forks.started, config)]
            _settle(forks.batch, places, start, reader, outcomes, config.max_retries)
    both = (
        *start.batches.values(),
        *start.evaluations.values(),
        *(forks.batch for forks in start.forks.values()),
    )
    return Recovery(
        start=start,
        started=started,
        replayed=tuple(number for number, batch in start.batches.items() if batch.finished),
        reused=sum(
            place.stands for batch in both if not batch.finished for place in batch.places.values()
        ),
        requeued=tuple(
            attempts[-1].trial
            for batch in both
            for attempts in batch.attempts.values()
            if attempts and attempts[-1].cut_off
        ),
        _run=run,
    )


def _require_same_tasks(run: RunState, split: Split) -> None:
    """Raise `UserError` for other tasks than the run began with.

    The order in which tasks are taken, and what an evaluation means, depend on all of them.
    """
    before = {(task.name, task.split) for task in run.tasks.values()}
    now = {(task.name, task.split) for task in task_records(split)}
    if changed := sorted({name for name, _ in before ^ now}):
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise UserError(
            f"the tasks in {run.tasks_dir} are not those that the run began with:"
            f" {', '.join(changed[:3])}{more}; put them back, or start a new run"
        )


def _require_known(names: Iterable[str], known: Container[str]) -> None:
    """Raise `JournalError` for a task, or a group, that the run never began."""
    if strange := next((name for name in names if name not in known), None):
        raise JournalError(
            f"the journal says what became of {one_line(strange, 80)}, and not that it was begun;"
            " put a sound copy of run.db in its place"
        )


def _settle(
    batch: RecordedBatch,
    groups: Sequence[GroupPlan],
    start: StartingPoint,
    reader: JournalReader,
    outcomes: OutcomePolicy,
    max_retries: int,
) -> None:
    """Fill in the `places` of a batch that had been planned as `groups`: which have an outcome.

    Raises:
        JournalError: the journal has trials or scores of other groups.
    """
    siblings = {group.group: group.trials[0] for group in groups}
    _require_known((*(group for group, _ in batch.attempts), *batch.scored), siblings)
    planned = {group.group: len(group.trials) for group in groups}
    for (group, index), attempts in batch.attempts.items():
        scored = batch.scored.get(group)
        unusable = siblings[group].task.name in start.unusable
        replaced = group in batch.refilled and index <= planned[group]
        batch.places[group, index] = RecordedPlace(
            trial_plan(siblings[group], index),
            attempts,
            frozenset(scored.trials) if scored else None,
            _stands(
                attempts,
                outcomes,
                max_retries,
                scored=scored is not None,
                given_up=unusable or replaced,
            ),
            reader,
        )


def _stands(
    attempts: Sequence[RecordedAttempt],
    outcomes: OutcomePolicy,
    max_retries: int,
    *,
    scored: bool,
    given_up: bool,
) -> bool:
    """Whether a place's last attempt is its outcome.

    What infrastructure broke is not: an outage may have ended the run, and is over when it is
    resumed. Each process has `max_retries` of its own.

    Args:
        scored: its group was.
        given_up: its task can't be used here, or a refill has taken its place.
    """
    if not attempts:
        return False
    last = attempts[-1]
    if last.finished is None or last.retried is not None or last.cut_off:
        return False
    if scored:
        return True
    if "retry" in last.verbs:
        # Given up for a fresh one that had not been announced yet.
        return last.finished.outcome is not Outcome.CANCELLED
    if last.verbs & {"stop", "cancel"}:
        return True
    if last.finished.outcome.infrastructure:
        return given_up
    match outcomes[last.finished.outcome]:
        case "halt":
            return False  # That ended the run; its cause is gone when the run is resumed.
        case "retry":
            return _retries(attempts, outcomes) >= max_retries
        case _:
            return True


def _retries(attempts: Sequence[RecordedAttempt], outcomes: OutcomePolicy) -> int:
    """How often its outcome, not a person or the run's end, was why it was tried again."""
    return sum(
        attempt.finished is not None
        and not attempt.cut_off
        and "retry" not in attempt.verbs
        and outcomes[attempt.finished.outcome] == "retry"
        for attempt in attempts[:-1]
    )
