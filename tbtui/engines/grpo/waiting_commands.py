"""Commands on running trials that have been passed on and not carried out yet."""

from __future__ import annotations

from collections.abc import Collection

from tbtui.engines.events_of import EventLog
from tbtui.journal.commands import Command
from tbtui.journal.events import CommandDone, CommandVerb, Outcome

_ENDING: Collection[CommandVerb] = ("stop", "cancel", "retry")


class WaitingCommands:
    """Journals for each command, once, what came of it."""

    def __init__(self, journal: EventLog) -> None:
        self._journal = journal
        self._waiting: dict[str, list[Command]] = {}

    def add(self, command: Command) -> None:
        self._waiting.setdefault(command.target, []).append(command)

    def done(self, command: Command, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=True, result=result))

    def refuse(self, command: Command, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=False, result=result))

    def carried_out(self, trial: str, verbs: Collection[str], result: str) -> None:
        """The trial did what the waiting commands of these verbs ask."""
        for command in self._take(trial, verbs):
            self.done(command, result)

    def answered(self, trial: str, command: str, ok: bool, result: str) -> None:
        """The trial has done this very command, or can't."""
        if (found := self.find(trial, command)) is not None:
            self._waiting[trial].remove(found)
            (self.done if ok else self.refuse)(found, result)

    def find(self, trial: str, command: str) -> Command | None:
        """None: it does not wait."""
        waiting = self._waiting.get(trial, ())
        return next((each for each in waiting if each.id == command), None)

    def call_off(self, trial: str, verbs: Collection[str], result: str) -> bool:
        """Nothing comes of them; says whether there were any."""
        taken = self._take(trial, verbs)
        for command in taken:
            self.refuse(command, result)
        return bool(taken)

    def over(self, trial: str, outcome: Outcome) -> None:
        """The trial ended: that is what some wanted, and too early for the others."""
        for command in self._waiting.pop(trial, []):
            if command.verb in _ENDING:
                self.done(command, f"{trial} ended as {outcome}")
            else:
                self.refuse(command, f"{trial} ended as {outcome} first")

    def _take(self, trial: str, verbs: Collection[str]) -> list[Command]:
        waiting = self._waiting.get(trial, [])
        taken = [command for command in waiting if command.verb in verbs]
        for command in taken:
            waiting.remove(command)
        return taken
