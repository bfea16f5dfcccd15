"""Takes an interrupted run up again: its checkpoint, its journal, its settings."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import socket
from pathlib import Path

from tbtui.config import to_json
from tbtui.engines.grpo.checkpoints import (
    CheckpointError,
    LoadedCheckpoint,
    latest,
    load_checkpoint,
    require_same_settings,
    sweep,
)
from tbtui.engines.grpo.recorded import POLICY_LOST_FIRST, RUN_WAS_KILLED, StartingPoint
from tbtui.engines.grpo.recovery import Recovery, recover
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.resume import keep_settings
from tbtui.journal.events import Noted, RunContinued, RunStarted, TasksSetAside
from tbtui.journal.reader import JournalReader
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy


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
        policy_lost: the process goes on with a new policy. A run that is paused stays so then; one
            that somebody resumes goes on.

    Raises:
        CheckpointError: it belongs to another model or other settings.
        UnrecoverableError: the tasks are not those that the run began with.
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
    unfit = prepared.unfit
    if policy_lost or unfit.keys() == recovery.start.unfit:
        return recovery.start
    # Another environment, or other packages: what turned out in trials may be otherwise too.
    journal.append(TasksSetAside(tasks=unfit, by="preflight"))
    return dataclasses.replace(recovery.start, set_aside=unfit, unfit=frozenset(unfit))


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
