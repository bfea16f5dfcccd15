"""Events of a journal: made, with what a test does not care about filled in, and read back."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tbtui.journal.events import (
    AnyEvent,
    Entry,
    EvalFinished,
    GroupScored,
    Outcome,
    PhaseSeconds,
    PolicyMeasured,
    RunContinued,
    RunStarted,
    TaskRecord,
    TrialFinished,
    TrialQueued,
    TrialScore,
    TurnParsed,
    TurnSampled,
    TurnStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord
from tbtui.journal.writer import JournalWriter
from tbtui.server_status import ServerStatus


def run_started(**changes: Any) -> RunStarted:
    """The beginning of a run of the embedded model on one task."""
    fields: dict[str, Any] = {
        "run": "r",
        "pid": 1,
        "host": "here",
        "tbtui_version": "1",
        "harbor_version": "1",
        "policy": "local",
        "model_name": "starter",
        "parameters": None,
        "context_limit": 1024,
        "environment": "sandbox",
        "environment_reason": "",
        "tasks_dir": "tasks",
        "tasks": (TaskRecord(name="copy-01", kind="copy", split="train"),),
        "settings": {},
    }
    return RunStarted(**(fields | changes))


def run_continued(**changes: Any) -> RunContinued:
    """Another process takes the run up from its starting weights, with nothing to make up for."""
    fields: dict[str, Any] = {
        "pid": 2,
        "host": "here",
        "tbtui_version": "1",
        "harbor_version": "1",
        "checkpoint": None,
        "step": 0,
        "replayed": (),
        "reused": 0,
        "requeued": (),
        "settings": {},
    }
    return RunContinued(**(fields | changes))


def trial_queued(trial: str, **changes: Any) -> TrialQueued:
    """A training trial of the first step."""
    fields: dict[str, Any] = {
        "label": f"copy-01/{trial}",
        "task": "copy-01",
        "group": "g",
        "step": 1,
        "purpose": "train",
        "budget_sec": 60,
    }
    return TrialQueued(trial=trial, **(fields | changes))


def turn_sampled(trial: str, **changes: Any) -> TurnSampled:
    """The answer to a trial's first model call, of two tokens."""
    fields: dict[str, Any] = {
        "turn": 1,
        "sample": 1,
        "text": "",
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "mean_logprob": -0.5,
        "min_logprob": -0.5,
        "stop_reason": "stop",
        "weights_version": 0,
        "seconds": 0.1,
    }
    return TurnSampled(trial=trial, **(fields | changes))


def write_answer(writer: JournalWriter, record: SampleRecord, **changes: Any) -> None:
    """A turn begins, and the model's answer to it comes, with its tokens."""
    writer.append(TurnStarted(trial=record.trial, turn=record.turn))
    fields = {
        "turn": record.turn,
        "sample": writer.add_sample(record),
        "completion_tokens": len(record.pieces),
        "weights_version": record.weights_version,
        "seconds": record.seconds,
    }
    writer.append(turn_sampled(record.trial, **(fields | changes)))


def sample_record(trial: str, pieces: Sequence[str] = ("ls",), **changes: Any) -> SampleRecord:
    """What the policy was given and said at a trial's first model call."""
    fields: dict[str, Any] = {
        "turn": 1,
        "prompt_ids": (1, 2, 3),
        "completion_ids": tuple(len(piece) for piece in pieces),
        "logprobs": np.full(len(pieces), -0.5, np.float32),
        "prompt_text": "$ ",
        "stop_reason": "stop",
        "weights_version": 0,
        "temperature": 1.0,
        "seconds": 0.2,
    }
    return SampleRecord(trial=trial, pieces=tuple(pieces), **(fields | changes))


def trial_finished(trial: str, reward: float | None, **changes: Any) -> TrialFinished:
    """A trial that has ended after a turn, with this verdict or lost without one."""
    lost, solved = reward is None, reward == 1
    fields: dict[str, Any] = {
        "outcome": Outcome.SANDBOX_LOST if lost else Outcome.SOLVED if solved else Outcome.FAILED,
        "reason": "",
        "verdict": reward,
        "reward": reward,
        "turns": 1,
        "seconds": PhaseSeconds(),
    }
    return TrialFinished(trial=trial, **(fields | changes))


def turn_parsed(trial: str, **changes: Any) -> TurnParsed:
    """An answer to a trial's first model call, in which nothing is to be done."""
    fields: dict[str, Any] = {"turn": 1, "analysis": "", "plan": "", "commands": ()}
    return TurnParsed(trial=trial, **(fields | {"task_complete": False} | changes))


def group_scored(group: str, trials: Mapping[str, TrialScore], **changes: Any) -> GroupScored:
    """A group of the first step that teaches something."""
    fields: dict[str, Any] = {
        "step": 1,
        "task": "copy-01",
        "disposition": "trained",
        "baseline": 0.5,
    }
    return GroupScored(group=group, trials=dict(trials), **(fields | changes))


def eval_finished(step: int, pass_rate: float | None, **changes: Any) -> EvalFinished:
    """An evaluation of eight trials by a step's weights."""
    fields: dict[str, Any] = {
        "weights_version": step,
        "temperature": 1.0,
        "scored": 8,
        "unscored": 0,
        "by_kind": {},
    }
    return EvalFinished(step=step, pass_rate=pass_rate, **(fields | changes))


def policy_measured(**changes: Any) -> PolicyMeasured:
    """A policy that samples, and has answered nothing yet."""
    fields: dict[str, Any] = {
        "activity": "sampling",
        "in_flight": 0,
        "running": 0,
        "completed": 0,
        "sampled_tokens": 0,
        "p50_sec": None,
        "p95_sec": None,
    }
    return PolicyMeasured(**(fields | changes))


def server_status(**changes: Any) -> ServerStatus:
    """A policy's server that works, and was asked nothing yet."""
    fields: dict[str, Any] = {
        "state": "active",
        "reason": "",
        "since": 0.0,
        "requests": (),
        "retries": 0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
    }
    return ServerStatus(**(fields | changes))


def write_journal(run: RunDirectory, events: Iterable[AnyEvent], **options: Any) -> RunDirectory:
    """Begin the run's journal with these events; `options` are the writer's."""
    with JournalWriter(run, **options) as journal:
        for event in events:
            journal.append(event)
    return run


def entries_of(run: RunDirectory) -> Sequence[Entry]:
    """All of its journal; nothing before there is one."""
    if not run.database.exists():
        return ()
    with contextlib.closing(JournalReader(run)) as reader:
        return reader.read(0, 1_000_000)


def events_of[E: AnyEvent](run: RunDirectory, kind: type[E]) -> list[E]:
    return [entry.event for entry in entries_of(run) if isinstance(entry.event, kind)]


HALF_WRITTEN = '{"seq": '


def spoil(run: RunDirectory, seq: int, body: str | bytes = HALF_WRITTEN) -> None:
    """Put something else in the place of an event's JSON."""
    with contextlib.closing(sqlite3.connect(run.database)) as db, db:
        db.execute("UPDATE events SET body = CAST(? AS TEXT) WHERE seq = ?", (body, seq))


def damage(run: RunDirectory) -> None:
    """Spoil all pages of a journal but the first one, which says what kind of file it is."""
    with run.database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (run.database.stat().st_size - 4096))
