"""Trials that people type in: one person at a time, journalled key by key."""

from __future__ import annotations

from typing import Protocol

from tbtui.engines.events_of import EventLog
from tbtui.engines.grpo.waiting_commands import WaitingCommands
from tbtui.engines.trials.attempts import Attempt, Attempts
from tbtui.journal.commands import Command
from tbtui.journal.events import HumanTyped, TrialGivenBack, TrialTakenOver
from tbtui.journal.typed import TypedError, from_arguments
from tbtui.rollout.messages import ControlVerb, KeysTyped, TypeKeys


class Workers(Protocol):
    """The part of the pool that is needed here."""

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool: ...

    def type_keys(self, keys: TypeKeys) -> bool: ...


class TakingOver:
    """Whose a trial is, from the moment that somebody asks for it until it is given back."""

    def __init__(
        self, attempts: Attempts, workers: Workers, waiting: WaitingCommands, journal: EventLog
    ) -> None:
        self._attempts = attempts
        self._workers = workers
        self._waiting = waiting
        self._journal = journal

    def begin(self, attempt: Attempt, command: Command) -> None:
        """At the next turn boundary; at once if it stands at one."""
        trial = attempt.trial
        if attempt.typist and attempt.typist != command.actor:
            self._waiting.refuse(command, f"{attempt.typist} types in {trial}: one at a time")
        elif attempt.taken:
            self._waiting.done(command, f"{trial} is yours already")
        elif attempt.paused == "freeze" and not command.arguments.get("thaw"):
            self._waiting.refuse(
                command,
                f"{trial} is frozen in the middle of a turn: resume it first, or say that it may"
                " be thawed to end its turn",
            )
        else:
            attempt.held, attempt.typist = True, command.actor
            self._waiting.add(command)
            self._workers.control(trial, "take_over", command.actor)

    def type(self, attempt: Attempt, command: Command) -> None:
        trial = attempt.trial
        if attempt.typist and attempt.typist != command.actor:
            self._waiting.refuse(command, f"{attempt.typist} types in {trial}: one at a time")
        elif not attempt.taken:
            why = "it waits for the end of its turn" if attempt.typist else "take it over first"
            self._waiting.refuse(command, f"{trial} is not yours to type in: {why}")
        else:
            try:
                parts = from_arguments(command.arguments)
            except TypedError as error:
                self._waiting.refuse(command, f"{trial}: {error}")
                return
            self._waiting.add(command)
            self._workers.type_keys(TypeKeys(trial, command.id, parts))

    def end(self, attempt: Attempt, command: Command) -> None:
        """Give it back; it stays paused."""
        if attempt.taken:
            self._waiting.add(command)
        else:
            self._waiting.done(command, f"{attempt.trial} is left to the agent, which stays paused")
        self.let_go(attempt, command.actor)

    def let_go(self, attempt: Attempt, actor: str) -> None:
        self.call_off(attempt, actor)
        self._workers.control(attempt.trial, "give_back", actor)

    def call_off(self, attempt: Attempt, actor: str) -> bool:
        """Whoever still waits for it does so in vain; False: nobody does."""
        if not attempt.typist or attempt.taken:
            return False
        attempt.typist = ""
        result = f"{attempt.trial}: called off by {actor}"
        self._waiting.call_off(attempt.trial, ("take_over",), result)
        return True

    def of(self, actor: str) -> list[Attempt]:
        """Those that somebody has, or waits for."""
        return [attempt for attempt in self._attempts if attempt.typist == actor]

    # What workers say

    def taken(self, trial: str) -> None:
        if (attempt := self._attempts.get(trial)) is None or not attempt.typist:
            return  # it was called off at the same moment
        attempt.taken = True
        self._journal.append(TrialTakenOver(trial=trial, actor=attempt.typist))
        self._waiting.carried_out(
            trial, ("take_over",), f"{trial} is {attempt.typist}'s to type in"
        )

    def typed(self, keys: KeysTyped) -> None:
        trial = keys.trial
        if (attempt := self._attempts.get(trial)) is None:
            return
        if keys.parts:
            # A trial that is being ended is given back before its last key is in the terminal.
            command = self._waiting.find(trial, keys.command)
            actor = command.actor if command is not None else attempt.typist
            self._journal.append(HumanTyped(trial=trial, actor=actor, parts=keys.parts))
        result = f"{trial}: {keys.error or 'typed'}"
        self._waiting.answered(trial, keys.command, not keys.error, result)

    def given_back(self, trial: str) -> None:
        if (attempt := self._attempts.get(trial)) is None or not attempt.taken:
            return
        self._journal.append(TrialGivenBack(trial=trial, actor=attempt.typist))
        attempt.taken, attempt.typist = False, ""
        self._waiting.carried_out(trial, ("give_back",), f"{trial} is the agent's again")
