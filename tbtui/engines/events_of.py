"""Messages, commands and tasks as the journal has them, for our trainer and for Prime-RL alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tbtui.journal.commands import Command
from tbtui.journal.events import (
    AnyEvent,
    CommandIssued,
    Purpose,
    TaskRecord,
    TurnObserved,
    TurnParsed,
)
from tbtui.rollout.messages import TurnSeen, TurnUnderstood

if TYPE_CHECKING:
    from tbtui.catalog.split import Split
    from tbtui.catalog.tasks import TaskInfo


class EventLog(Protocol):
    """Where trials' events go: a run's journal, or the files of Prime-RL's plugin."""

    def append(self, event: AnyEvent) -> object: ...


def turn_event(message: TurnUnderstood | TurnSeen) -> TurnParsed | TurnObserved:
    match message:
        case TurnUnderstood():
            return TurnParsed(
                trial=message.trial,
                turn=message.turn,
                analysis=message.analysis,
                plan=message.plan,
                commands=message.commands,
                task_complete=message.task_complete,
                error=message.error,
                warning=message.warning,
            )
        case TurnSeen(trial, turn, observation, seconds):
            return TurnObserved(trial=trial, turn=turn, observation=observation, seconds=seconds)


def sent(turn: TurnParsed) -> list[str]:
    """The keystrokes of a turn; after an error nothing is executed."""
    return [] if turn.error else [command.keystrokes for command in turn.commands]


def issued(command: Command) -> CommandIssued:
    return CommandIssued(
        command=command.id,
        verb=command.verb,
        target=command.target,
        actor=command.actor,
        reason=command.reason,
        arguments=dict(command.arguments),
    )


def task_records(split: Split) -> tuple[TaskRecord, ...]:
    """A run's tasks by use; with the data set of each, where they are of several."""
    uses: tuple[tuple[Purpose, tuple[TaskInfo, ...]], ...] = (
        ("train", split.train),
        ("eval", split.heldout),
    )
    several = len({task.dataset for _, tasks in uses for task in tasks}) > 1
    return tuple(
        TaskRecord(
            name=task.name,
            kind=task.kind,
            category=task.category,
            difficulty=task.difficulty,
            split=purpose,
            dataset=task.dataset if several else "",
        )
        for purpose, tasks in uses
        for task in tasks
    )
