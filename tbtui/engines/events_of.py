"""Messages and commands as the journal's events: the same for our trainer and for Prime-RL's
environment servers."""

from __future__ import annotations

from typing import Protocol

from tbtui.journal.commands import Command
from tbtui.journal.events import AnyEvent, CommandIssued, TurnObserved, TurnParsed
from tbtui.rollout.messages import TurnSeen, TurnUnderstood


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
