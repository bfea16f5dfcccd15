"""Carries out what may be asked of trials while they are queued or running, by people and by their
batch.

What may be asked, and when, is in `journal/verbs.py`. Each command's result is journalled once;
what a trial did is known from its worker only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Protocol

from tbtui.engines.events_of import EventLog
from tbtui.engines.trials.admission import Admission
from tbtui.engines.trials.attempts import Attempt, Attempts, Place
from tbtui.journal.commands import Command, TypedError, from_arguments, message_text
from tbtui.journal.events import (
    CommandDone,
    HumanMessaged,
    HumanTyped,
    Noted,
    Outcome,
    TrialGivenBack,
    TrialPaused,
    TrialResumed,
    TrialTakenOver,
)
from tbtui.journal.hold import PAUSED, Hold, typed_in
from tbtui.journal.verbs import Standing, refusal
from tbtui.rollout.messages import (
    AgentWritten,
    Completion,
    CompletionDelayed,
    CompletionFailed,
    ControlRefused,
    ControlVerb,
    KeysTyped,
    TrialSpec,
    TypeKeys,
    WriteToAgent,
)
from tbtui.vocabulary import CommandVerb, TrialPhase

_ENDING: Collection[CommandVerb] = ("stop", "cancel", "retry")


class Pool(Protocol):
    """Where trials run; `rollout.pool.WorkerPool` is the one that a run uses."""

    def start_trial(self, spec: TrialSpec) -> None: ...

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool: ...

    def type_keys(self, keys: TypeKeys) -> bool: ...

    def write(self, message: WriteToAgent) -> bool: ...

    def reply(self, answer: Completion | CompletionFailed) -> bool: ...

    def delay(self, delayed: CompletionDelayed) -> bool: ...


class WaitingCommands:
    """Commands on running trials that are passed on and not carried out yet."""

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
        """Answer the waiting commands of these verbs: the trial did what they ask."""
        for command in self._take(trial, verbs):
            self.done(command, result)

    def answered(self, trial: str, command: str, ok: bool, result: str) -> None:
        """Answer this very command: the trial has done it, or can't."""
        if (found := self.find(trial, command)) is not None:
            self._waiting[trial].remove(found)
            (self.done if ok else self.refuse)(found, result)

    def find(self, trial: str, command: str) -> Command | None:
        """The waiting command with this id; None: it does not wait."""
        waiting = self._waiting.get(trial, ())
        return next((each for each in waiting if each.id == command), None)

    def call_off(self, trial: str, verbs: Collection[str], result: str) -> bool:
        """Refuse the waiting commands of these verbs; returns whether there were any."""
        taken = self._take(trial, verbs)
        for command in taken:
            self.refuse(command, result)
        return bool(taken)

    def over(self, trial: str, outcome: Outcome, after_cancel: str) -> None:
        """Answer all that wait: the trial ended, as some wanted and too early for the others."""
        ended = f"{trial} ended as {outcome}"
        for command in self._waiting.pop(trial, []):
            if command.verb not in _ENDING:
                self.refuse(command, f"{ended} first")
            elif after_cancel and outcome is Outcome.CANCELLED and command.verb != "stop":
                self.done(command, f"{ended}; {after_cancel}")
            else:
                self.done(command, ended)

    def _take(self, trial: str, verbs: Collection[str]) -> list[Command]:
        waiting = self._waiting.get(trial, [])
        taken = [command for command in waiting if command.verb in verbs]
        for command in taken:
            waiting.remove(command)
        return taken


class TakingOver:
    """Trials that people type in: one person at a time, journalled key by key."""

    def __init__(
        self, attempts: Attempts, pool: Pool, waiting: WaitingCommands, journal: EventLog
    ) -> None:
        self._attempts = attempts
        self._pool = pool
        self._waiting = waiting
        self._journal = journal

    def begin(self, attempt: Attempt, command: Command) -> None:
        """Take the trial over at the end of its turn; at once if it is paused there."""
        if attempt.hold.typist:
            self._waiting.done(command, f"{attempt.trial} is yours already")
            return
        attempt.want("take_over", command.actor)
        self._waiting.add(command)
        self._pool.control(attempt.trial, "take_over", command.actor)

    def type(self, attempt: Attempt, command: Command) -> None:
        """Pass keys on."""
        try:
            parts = from_arguments(command.arguments)
        except TypedError as error:
            self._waiting.refuse(command, f"{attempt.trial}: {error}")
            return
        self._waiting.add(command)
        self._pool.type_keys(TypeKeys(attempt.trial, command.id, parts))

    def end(self, attempt: Attempt, command: Command) -> None:
        """Give the trial back; it stays paused."""
        if attempt.hold.typist:
            self._waiting.add(command)
        else:
            self._waiting.done(command, f"{attempt.trial} is left to the agent, which stays paused")
        self.let_go(attempt, command.actor)

    def let_go(self, attempt: Attempt, actor: str) -> None:
        self.call_off(attempt, actor)
        self._pool.control(attempt.trial, "give_back", actor)

    def call_off(self, attempt: Attempt, actor: str) -> bool:
        """Refuse a person who still waits for the trial; False: there is none."""
        if not attempt.wanted.typist or attempt.hold.typist:
            return False
        attempt.want("give_back")
        result = f"{attempt.trial}: called off by {actor}"
        self._waiting.call_off(attempt.trial, ("take_over",), result)
        return True

    def of(self, actor: str) -> list[Attempt]:
        """Trials that `actor` has taken over, or waits for."""
        return [attempt for attempt in self._attempts if attempt.typist == actor]

    # What workers say

    def taken(self, trial: str) -> None:
        if (attempt := self._attempts.get(trial)) is None or not (actor := attempt.wanted.typist):
            return  # it was called off at the same moment
        attempt.hold = typed_in(actor)
        self._journal.append(TrialTakenOver(trial=trial, actor=actor))
        self._waiting.carried_out(trial, ("take_over",), f"{trial}: {actor} is typing in it")

    def typed(self, keys: KeysTyped) -> None:
        trial = keys.trial
        if (attempt := self._attempts.get(trial)) is None:
            return
        if keys.parts:
            # A trial that is being ended is given back before its last key is in the terminal.
            command = self._waiting.find(trial, keys.command)
            actor = command.actor if command is not None else attempt.typist
            attempt.typed_by = actor
            self._journal.append(HumanTyped(trial=trial, actor=actor, parts=keys.parts))
            attempt.model.typed_in()
        result = f"{trial}: {keys.error or 'typed'}"
        self._waiting.answered(trial, keys.command, not keys.error, result)

    def given_back(self, trial: str) -> None:
        if (attempt := self._attempts.get(trial)) is None or not (actor := attempt.hold.typist):
            return
        self._journal.append(TrialGivenBack(trial=trial, actor=actor))
        attempt.hold = PAUSED
        attempt.want("give_back")
        self._waiting.carried_out(trial, ("give_back",), f"{trial} is given back to the agent")


class Steering:
    """Commands on single trials, and holds of all of them."""

    def __init__(
        self,
        attempts: Attempts,
        admission: Admission,
        pool: Pool,
        journal: EventLog,
        *,
        prime_rl: bool = False,
    ) -> None:
        """`prime_rl`: the trials run in an environment server of Prime-RL's."""
        self._prime_rl = prime_rl
        self._attempts = attempts
        self._admission = admission
        self._pool = pool
        self._waiting = WaitingCommands(journal)
        self._journal = journal
        self.taking_over = TakingOver(attempts, pool, self._waiting, journal)

    @property
    def open(self) -> bool:
        """Whether the run is not paused."""
        return self._admission.is_open

    async def at_rest(self) -> None:
        """Wait until no trial is at work: each is queued, paused or over."""
        await self._attempts.at_rest()

    def withdraw(self, place: Place[Any], reason: str) -> None:
        """End the attempt that fills this place, without verification or another attempt."""
        place.final.set()
        if place.attempt is not None:
            self._cancel(place.attempt, reason)

    def expire(self, place: Place[Any], reason: str) -> None:
        """End the trial now and verify it; one that is held, when it is resumed.

        One that has not begun is withdrawn.
        """
        place.final.set()
        attempt = place.attempt
        if attempt is None:
            return
        if attempt.slot is None:
            self._cancel(attempt, reason)
        elif attempt.wanted.paused:
            place.late = True
        else:
            self._pool.control(attempt.trial, "expire", reason)

    def _cancel(self, attempt: Attempt, reason: str) -> None:
        attempt.ended_because = attempt.ended_because or reason
        if attempt.slot is not None:
            self._pool.control(attempt.trial, "cancel", reason)
        elif not attempt.withdrawn.done():
            attempt.withdrawn.set_result(None)

    def refusal(self, command: Command) -> str:
        """Why a command on one trial may not be given as the trial stands; empty: it may."""
        found = self._attempts.find(command.target)
        return refusal(command.verb, self._standing(found, command))

    def control(self, command: Command) -> None:
        """Carry a command on one trial out; what came of it is journalled as `CommandDone`."""
        trial, verb = command.target, command.verb
        found = self._attempts.find(trial)
        if why := self.refusal(command):
            self._waiting.refuse(command, why)
            return
        assert found is not None
        place, attempt = found
        match verb:
            case "cancel" | "stop" if attempt.slot is None:
                self._waiting.add(command)
                place.final.set()
                self._cancel(attempt, _by(command, "taken out of the queue"))
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
            case "resume":
                self._resume(place, attempt, command)
            case "take_over":
                self.taking_over.begin(attempt, command)
            case "type":
                self.taking_over.type(attempt, command)
            case "message":
                self._write(attempt, command)
            case "give_back" if command.arguments.get("stay") or not self.open:
                self.taking_over.end(attempt, command)
            case "give_back":
                self._resume(place, attempt, command)
            case "pause" if attempt.slot is None:
                attempt.want(verb)
                self._waiting.add(command)
            case "pause" | "freeze":
                attempt.want(verb)
                if attempt.hold.after(verb) == attempt.hold:
                    so = "frozen" if attempt.hold.frozen else "paused"
                    self._waiting.done(command, f"{trial} is {so}")
                else:
                    self._waiting.add(command)
                    self._pool.control(trial, verb, _by(command, "asked"))
            case _:
                self._waiting.refuse(command, f"{trial} belongs to no batch that is trained on")

    def _write(self, attempt: Attempt, command: Command) -> None:
        """Pass a message to the agent on."""
        try:
            text = message_text(command.arguments)
        except TypedError as error:
            self._waiting.refuse(command, f"{attempt.trial}: {error}")
            return
        self._waiting.add(command)
        self._pool.write(WriteToAgent(attempt.trial, command.id, text))

    def written(self, message: AgentWritten) -> None:
        """A worker has put a message into its trial's next prompt, or can't."""
        trial = message.trial
        command = self._waiting.find(trial, message.command)
        if command is not None and not message.error:
            self._journal.append(HumanMessaged(trial=trial, actor=command.actor, text=message.text))
        result = f"{trial}: {message.error or 'its next prompt has the message'}"
        self._waiting.answered(trial, message.command, not message.error, result)

    def is_held(self, trial: str) -> bool:
        """Whether a person holds this trial, or has asked for it."""
        attempt = self._attempts.get(trial)
        return attempt is not None and attempt.wanted.paused

    def started(self, attempt: Attempt) -> None:
        """Pause an attempt that has left the queue, if that was asked of it there."""
        if attempt.wanted.paused:
            self._pool.control(attempt.trial, "pause", "asked while it was queued")

    def _standing(self, found: tuple[Place[Any], Attempt] | None, command: Command) -> Standing:
        """How the trial stands that a command is for; None: no such one is queued or running."""
        if found is None:
            return Standing(
                command.target, TrialPhase.FINISHED, asker=command.actor, step_open=False
            )
        place, attempt = found
        return Standing(
            attempt.trial,
            TrialPhase.QUEUED if attempt.slot is None else attempt.phase,
            hold=attempt.hold,
            next_typist=attempt.wanted.typist,
            asker=command.actor,
            thaws=bool(command.arguments.get("thaw")),
            held_out=place.plan.purpose == "eval",
            fork=place.plan.purpose == "fork",
            probe=place.plan.purpose == "probe",
            prime_rl=self._prime_rl,
        )

    def _resume(self, place: Place[Any], attempt: Attempt, command: Command) -> None:
        called_off = self.taking_over.call_off(attempt, command.actor)
        attempt.want("resume")
        if not attempt.hold.paused:
            # It takes back a pause that the trial has not come to yet, of its own or of the run.
            taken_back = f"{attempt.trial}: taken back by {command.actor}"
            called_off |= self._waiting.call_off(attempt.trial, ("pause", "freeze"), taken_back)
            self._waiting.done(command, f"{attempt.trial} is running")
            if attempt.slot is None or (not called_off and self.open):
                return
        else:
            self._waiting.add(command)
        self._pool.control(attempt.trial, "resume", _by(command, "asked"))
        if place.late:
            self._pool.control(attempt.trial, "expire", "the step's deadline passed")

    def hold(self, verb: Literal["pause", "freeze"] = "pause") -> None:
        """Start no new trial; let each running one stand at the end of its turn, or now."""
        self._admission.close()
        for attempt in self._attempts:
            if attempt.slot is not None and not attempt.typist:
                self._pool.control(attempt.trial, verb, "the whole run")

    def release(self) -> None:
        """Resume all trials except those that are held one by one."""
        self._admission.open()
        for attempt in self._attempts:
            if attempt.slot is not None and not attempt.wanted.paused:
                self._pool.control(attempt.trial, "resume", "the whole run")

    def leave(self, actor: str) -> str:
        """Give back what a client that has left had taken over; it stays paused. Returns what."""
        theirs = self.taking_over.of(actor)
        for attempt in theirs:
            self.taking_over.let_go(attempt, actor)
        trials = ", ".join(attempt.trial for attempt in theirs)
        return f"given back: {trials}" if theirs else f"{actor} has no trial"

    def over(self, trial: str, outcome: Outcome, after_cancel: str = "") -> None:
        """Answer the commands on a trial that ended.

        `after_cancel`: what follows where it was cancelled, for the person who asked for that.
        """
        self._waiting.over(trial, outcome, after_cancel)

    def paused(self, trial: str, hold: Hold) -> None:
        """A trial is paused, frozen or running now."""
        attempt = self._attempts.get(trial)
        if attempt is None:
            return
        self._attempts.mark(attempt, hold)
        if not hold.paused:
            self._journal.append(TrialResumed(trial=trial))
            self._waiting.carried_out(trial, ("resume", "give_back"), f"{trial} goes on")
        else:
            self._journal.append(TrialPaused(trial=trial, frozen=hold.frozen))
            verbs = ("pause", "freeze") if hold.frozen else ("pause",)
            self._waiting.carried_out(trial, verbs, f"{trial} {hold.state}")

    def refused(self, refusal: ControlRefused) -> None:
        """A trial can't do what was asked, or can't go on doing it.

        If no command waits for the answer (the whole run was paused, or the trial goes on after
        it was held), only a trial that goes on acting is noted.
        """
        trial, verb = refusal.trial, refusal.verb
        found = self._attempts.find(trial)
        if found is not None and verb in ("pause", "freeze", "take_over"):
            _, attempt = found
            if verb == "take_over" or not attempt.wanted.typist:
                attempt.want("resume")
        awaited = self._waiting.call_off(trial, (verb,), f"{trial}: {refusal.reason}")
        if not awaited and not refusal.past_holding:
            name = found[0].plan.label if found else trial
            self._journal.append(Noted(level="warning", text=f"{name}: {refusal.reason}"))


def _by(command: Command, what: str) -> str:
    return f"{what} by {command.actor}" + (f": {command.reason}" if command.reason else "")
