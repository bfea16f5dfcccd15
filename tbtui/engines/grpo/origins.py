"""Reads from a journal where a fork begins: the turns it shares, and their exact tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tbtui.algorithm.evaluation import PASS_REWARD
from tbtui.errors import UserError
from tbtui.journal.commands import Typed
from tbtui.journal.events import (
    AgentCommand,
    Entry,
    ForksStarted,
    HumanTyped,
    TrialFinished,
    TrialForked,
    TrialQueued,
    TurnObserved,
    TurnParsed,
    TurnSampled,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.rollout.forking import ForkPoint, RecordedTurn


class ForkError(UserError):
    """A trial can't be forked there; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork begins, for the engine: what its worker is given, and the tokens shared."""

    point: ForkPoint
    task: str
    """Name of the forked trial's task."""
    history_ids: tuple[int, ...] = ()
    """The exact tokens of the shared turns, from the first prompt to the last answer. They are
    context: only what the fork samples itself can be trained on."""
    prompt_ids: tuple[int, ...] = ()
    """The exact prompt of `point.turn` as it was recorded; empty for turn 1."""


def read_origin(
    run: RunDirectory, reader: JournalReader, trial: str, turn: int, *, go_on: bool = False
) -> Origin:
    """The origin of forks of `trial` whose first own turn is number `turn`, from 1.

    The trial may still run. Where it is a fork itself, the turns that it shares with its parent
    are shared too.

    Args:
        run: the trial's, whose journal `reader` reads.
        go_on: the forks go on where a screen differs from the recorded one.

    Raises:
        ForkError: there is no such trial or turn, or its conversation can't be gone on from.
        JournalError
    """
    origin = _read(run, reader, trial, turn)
    return dataclasses.replace(origin, point=dataclasses.replace(origin.point, go_on=go_on))


@dataclass(frozen=True, slots=True)
class Course:
    """A trial that is over: how many turns it had, and what they came to."""

    turns: int
    solved: bool


def read_course(reader: JournalReader, trial: str) -> Course:
    """How a trial went, for the values of its turns.

    Raises:
        ForkError: there is no such trial, it still runs, or nothing scored it.
        JournalError
    """
    entries = [entry.event for entry in reader.read_trial(trial)]
    if not any(isinstance(event, TrialQueued) for event in entries):
        raise ForkError(f"{trial}: no such trial")
    end = next((e for e in reversed(entries) if isinstance(e, TrialFinished)), None)
    if end is None:
        raise ForkError(f"{trial} still runs: its turns have values once it has ended")
    if end.reward is None:
        raise ForkError(f"{trial} has no reward ({end.outcome}): its turns have no values")
    turns = [e.turn for e in entries if isinstance(e, TurnSampled) and e.purpose == "turn"]
    if not turns:
        raise ForkError(f"{trial} has no turn to fork from")
    return Course(max(turns), end.reward >= PASS_REWARD)


def _read(run: RunDirectory, reader: JournalReader, trial: str, turn: int) -> Origin:
    if turn < 1:
        raise ForkError(f"turn {turn}: turns count from 1")
    entries = reader.read_trial(trial)
    queued = next((e.event for e in entries if isinstance(e.event, TrialQueued)), None)
    if queued is None:
        raise ForkError(f"{trial}: no such trial in {run.name}")
    before = Origin(ForkPoint(trial, 1), queued.task)
    if queued.parent:
        _require_faithful(trial, entries)
        before = _of_parent(run, reader, queued, min(turn, queued.fork_turn))
        if turn <= queued.fork_turn:
            return before
    calls = [e.event for e in entries if isinstance(e.event, TurnSampled)]
    _require_plain(trial, turn, calls)
    if turn == 1:
        return before
    turns = _turns(entries)
    shared = [call for call in calls if call.turn < turn]
    samples = reader.samples(trial, limit=len(shared) + 1)
    if len(samples) <= len(shared):
        raise ForkError(f"{trial}: the tokens of turn {turn} are not recorded")
    recorded = [
        RecordedTurn(
            turn=call.turn,
            prompt=sample.prompt_text,
            answer=call.text,
            commands=turns[call.turn].commands,
            screen=turns[call.turn].screen,
            complete=turns[call.turn].complete,
            typed=tuple(turns[call.turn].typed),
        )
        for call, sample in zip(shared, samples, strict=False)
    ]
    last, here = samples[len(shared) - 1], samples[len(shared)]
    point = ForkPoint(
        trial=trial,
        turn=turn,
        turns=(*before.point.turns, *recorded),
        prompt=here.prompt_text,
        typed=tuple(turns[turn].typed),
        spent_sec=before.point.spent_sec + sum(turns[call.turn].seconds for call in shared),
        snapshots=(run.snapshots(trial), *before.point.snapshots),
    )
    return Origin(point, queued.task, last.prompt_ids + last.completion_ids, here.prompt_ids)


def _of_parent(run: RunDirectory, reader: JournalReader, fork: TrialQueued, turn: int) -> Origin:
    """The origin at a turn that a fork shares with its parent, which may be of another run."""
    groups = (e.event for e in reader.each(["forks_started"]))
    started = (e for e in groups if isinstance(e, ForksStarted) and e.group == fork.group)
    elsewhere = next((e.parent_run for e in started), "")
    if not elsewhere:
        return _read(run, reader, fork.parent, turn)
    other = RunDirectory(Path(elsewhere))
    if not other.database.is_file():
        raise ForkError(f"{fork.trial} forks {fork.parent} of {other.path}, which is gone")
    parents = JournalReader(other)
    try:
        return _read(other, parents, fork.parent, turn)
    finally:
        parents.close()


def _require_faithful(trial: str, entries: Sequence[Entry]) -> None:
    """Raise `ForkError` for a fork that never stood where its parent did."""
    reached = next((e.event for e in entries if isinstance(e.event, TrialForked)), None)
    if reached is None:
        raise ForkError(f"{trial} is a fork that has not reached its first turn")


def _require_plain(trial: str, turn: int, calls: Sequence[TurnSampled]) -> None:
    """Raise `ForkError` where there is no such turn, or a history that was rewritten before it."""
    numbers = [call.turn for call in calls if call.purpose == "turn"]
    if turn not in numbers:
        has = f"it has turns {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise ForkError(f"{trial} has no turn {turn}: {has}")
    for call in calls:
        if call.turn <= turn and call.purpose != "turn":
            raise ForkError(
                f"{trial} summarised its history at turn {call.turn}: it can be forked up to there"
            )
        if call.turn <= turn and call.sample is None:
            raise ForkError(f"{trial}: only its trainer has the tokens of turn {call.turn}")


@dataclass(slots=True)
class _Turn:
    commands: tuple[AgentCommand, ...] = ()
    screen: str | None = None
    complete: bool = False
    typed: list[Typed] = field(default_factory=list)
    seconds: float = 0.0


def _turns(entries: Iterable[Entry]) -> dict[int, _Turn]:
    """By number, what came of the trial's turns in its terminal."""
    turns: dict[int, _Turn] = {}
    typed: list[Typed] = []
    for entry in entries:
        match entry.event:
            case TurnSampled() as event:
                turn = turns.setdefault(event.turn, _Turn())
                turn.seconds += event.seconds
                turn.typed, typed = typed, []
            case TurnParsed() as event:
                turn = turns.setdefault(event.turn, _Turn())
                turn.commands, turn.complete = event.commands, event.task_complete
            case TurnObserved() as event:
                turn = turns.setdefault(event.turn, _Turn())
                turn.screen = event.observation
                turn.seconds += event.seconds
            case HumanTyped() as event:
                typed += event.parts
            case _:
                pass
    return turns
