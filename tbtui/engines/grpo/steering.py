"""What may be asked of trials while they are queued or running, by people and by their batch."""

from __future__ import annotations

from typing import Literal, Protocol

from tbtui.engines.events_of import EventLog
from tbtui.engines.grpo.admission import Admission
from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.taking_over import TakingOver
from tbtui.engines.grpo.waiting_commands import WaitingCommands
from tbtui.engines.trials.attempts import Attempt, Attempts, Place
from tbtui.journal.commands import Command
from tbtui.journal.events import Noted, TrialPaused, TrialResumed
from tbtui.rollout.messages import (
    Completion,
    CompletionDelayed,
    CompletionFailed,
    ControlRefused,
    ControlVerb,
    TrialSpec,
    TypeKeys,
)


class Pool(Protocol):
    """Where trials run; `rollout.pool.WorkerPool` is the one that a run uses."""

    def start_trial(self, spec: TrialSpec) -> None: ...

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool: ...

    def type_keys(self, keys: TypeKeys) -> bool: ...

    def reply(self, answer: Completion | CompletionFailed) -> bool: ...

    def delay(self, delayed: CompletionDelayed) -> bool: ...


class Steering:
    """Journals every command's result once; what a trial did is known from its worker only."""

    def __init__(
        self,
        attempts: Attempts,
        admission: Admission,
        pool: Pool,
        waiting: WaitingCommands,
        journal: EventLog,
    ) -> None:
        self._attempts = attempts
        self._admission = admission
        self._pool = pool
        self._waiting = waiting
        self._journal = journal
        self.taking_over = TakingOver(attempts, pool, waiting, journal)

    @property
    def open(self) -> bool:
        """The run is not paused."""
        return self._admission.is_open

    async def at_rest(self) -> None:
        """Until no trial is at work: each is queued, paused or over."""
        await self._attempts.at_rest()

    def live(self, plan: TrialPlan) -> str:
        """The trial that fills this place now; empty when none does (it waits for a retry)."""
        place = self._attempts.place(plan)
        return place.attempt.trial if place and place.attempt else ""

    def withdraw(self, plan: TrialPlan, reason: str) -> None:
        """End whatever fills this place, without verdict and for good."""
        if (place := self._attempts.place(plan)) is None:
            return
        place.final.set()
        if place.attempt is not None:
            self._cancel(place.attempt, reason)

    def expire(self, plan: TrialPlan, reason: str) -> None:
        """End it at its next turn boundary, with a verdict; one that is held, when it is resumed.

        One that has not begun is withdrawn.
        """
        if (place := self._attempts.place(plan)) is None:
            return
        place.final.set()
        attempt = place.attempt
        if attempt is None:
            return
        if attempt.slot is None:
            self._cancel(attempt, reason)
        elif attempt.held:
            place.late = True
        else:
            self._pool.control(attempt.trial, "expire", reason)

    def _cancel(self, attempt: Attempt, reason: str) -> None:
        attempt.ended_because = attempt.ended_because or reason
        if attempt.slot is not None:
            self._pool.control(attempt.trial, "cancel", reason)
        elif not attempt.withdrawn.done():
            attempt.withdrawn.set_result(None)

    def control(self, command: Command) -> None:
        """Carry a command on one trial out; what came of it is journalled as `CommandDone`."""
        trial, verb = command.target, command.verb
        found = self._attempts.find(trial)
        if found is None:
            self._waiting.refuse(command, f"{trial} is not running: nothing to {verb}")
            return
        place, attempt = found
        queued = attempt.slot is None
        match verb:
            case "exclude" | "include":
                self._waiting.refuse(command, f"{trial} belongs to no batch that is trained on")
            case "cancel" | "stop" if queued:
                self._waiting.add(command)
                place.final.set()
                self._cancel(attempt, _by(command, "taken out of the queue"))
            case "pause" | "freeze" | "resume" | "retry" | "take_over" | "type" if queued:
                self._waiting.refuse(command, f"{trial} is still queued: nothing to {verb}")
            case "cancel":
                self._waiting.add(command)
                place.final.set()
                self._cancel(attempt, _by(command, "cancelled"))
            case "stop":
                self._waiting.add(command)
                place.final.set()
                attempt.ended_because = _by(command, "stopped")
                self._pool.control(trial, verb, command.reason)
            case "retry":
                self._waiting.add(command)
                place.again = _by(command, "asked")
                self._cancel(attempt, _by(command, "given up for a fresh attempt"))
            case "resume" if attempt.typist not in ("", command.actor):
                why = f"{attempt.typist} types in {trial}; give_back takes it from them"
                self._waiting.refuse(command, why)
            case "resume":
                self._resume(place, attempt, command)
            case "take_over":
                self.taking_over.begin(attempt, command)
            case "type":
                self.taking_over.type(attempt, command)
            case "give_back" if not attempt.typist:
                self._waiting.refuse(command, f"nobody has taken {trial} over")
            case "give_back" if command.arguments.get("stay") or not self.open:
                self.taking_over.end(attempt, command)
            case "give_back":
                self._resume(place, attempt, command)
            case "freeze" if attempt.typist:
                self._waiting.refuse(command, f"{attempt.typist} types in {trial}")
            case "pause" | "freeze":
                attempt.held = True
                if attempt.paused in ("freeze", verb):
                    self._waiting.done(command, f"{trial} is {_STATE[attempt.paused]}")
                else:
                    self._waiting.add(command)
                    self._pool.control(trial, verb, _by(command, "asked"))
            case _:
                self._waiting.refuse(command, f"{verb} is nothing that a trial could do")

    def _resume(self, place: Place, attempt: Attempt, command: Command) -> None:
        attempt.held = False
        called_off = self.taking_over.call_off(attempt, command.actor)
        if attempt.paused is None:
            # A pause that it has not come to yet: nothing more is heard of that.
            taken_back = f"{attempt.trial}: taken back by {command.actor}"
            called_off |= self._waiting.call_off(attempt.trial, ("pause", "freeze"), taken_back)
            self._waiting.done(command, f"{attempt.trial} is running")
            if not called_off:
                return
        else:
            self._waiting.add(command)
        self._pool.control(attempt.trial, "resume", _by(command, "asked"))
        if place.late:
            self._pool.control(attempt.trial, "expire", "the step's deadline passed")

    def hold(self, verb: Literal["pause", "freeze"] = "pause") -> None:
        """Start no new trial; let each running one stop at its next turn boundary, or now."""
        self._admission.close()
        for attempt in self._attempts:
            if attempt.slot is not None and not attempt.typist:
                self._pool.control(attempt.trial, verb, "the whole run")

    def release(self) -> None:
        """Go on, with all trials but those that somebody holds one by one."""
        self._admission.open()
        for attempt in self._attempts:
            if attempt.slot is not None and not attempt.held:
                self._pool.control(attempt.trial, "resume", "the whole run")

    def leave(self, actor: str) -> str:
        """Somebody is not there any more: what they have taken over is given back, and stays
        paused. Says what."""
        theirs = self.taking_over.of(actor)
        for attempt in theirs:
            self.taking_over.let_go(attempt, actor)
        trials = ", ".join(attempt.trial for attempt in theirs)
        return f"given back: {trials}" if theirs else f"{actor} has no trial"

    def paused(self, trial: str, paused: Literal["pause", "freeze"] | None) -> None:
        attempt = self._attempts.get(trial)
        if attempt is None:
            return
        self._attempts.mark(attempt, paused)
        if paused is None:
            self._journal.append(TrialResumed(trial=trial))
            self._waiting.carried_out(trial, ("resume", "give_back"), f"{trial} goes on")
        else:
            self._journal.append(TrialPaused(trial=trial, frozen=paused == "freeze"))
            verbs = ("pause", "freeze") if paused == "freeze" else ("pause",)
            self._waiting.carried_out(trial, verbs, f"{trial} {_STATE[paused]}")

    def refused(self, refusal: ControlRefused) -> None:
        """A trial can't do what was asked, or can't go on doing it.

        Where nobody waits for the answer (the whole run was paused, or the trial goes on after it
        was held), a person is told only of a trial that goes on acting.
        """
        trial, verb = refusal.trial, refusal.verb
        found = self._attempts.find(trial)
        if found is not None and verb in ("pause", "freeze", "take_over"):
            _, attempt = found
            attempt.held = False
            if verb == "take_over":
                attempt.typist = ""
        awaited = self._waiting.call_off(trial, (verb,), f"{trial}: {refusal.reason}")
        if not awaited and not refusal.past_holding:
            name = found[0].plan.label if found else trial
            self._journal.append(Noted(level="warning", text=f"{name}: {refusal.reason}"))


_STATE = {"pause": "paused", "freeze": "frozen"}


def _by(command: Command, what: str) -> str:
    return f"{what} by {command.actor}" + (f": {command.reason}" if command.reason else "")
