"""One trial of an environment server: its place, its log, and what people asked of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tbtui.engines.events_of import issued, turn_event
from tbtui.engines.grpo.admission import Slot
from tbtui.engines.prime_rl.plugin.endpoint import Refused
from tbtui.engines.prime_rl.plugin.trial_log import TrialLog
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    CommandDone,
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TurnStarted,
)
from tbtui.journal.verbs import Standing
from tbtui.rollout.messages import (
    Completion,
    CompletionFailed,
    ControlRefused,
    FromWorker,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleWanted,
    TrialFacts,
    TurnSeen,
    TurnUnderstood,
)
from tbtui.rollout.outcome import Decision

_ENDING = {"stop": "stopped", "cancel": "cancelled", "retry": "given up for another attempt"}
_STATE = {"pause": "paused", "freeze": "frozen"}


class Model(Protocol):
    """Who answers the agent."""

    async def answer(self, wanted: SampleWanted) -> Completion | CompletionFailed | Refused: ...


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """What a trial came to. `facts` is None when it never began, or its worker died under it."""

    decision: Decision
    facts: TrialFacts | None


@dataclass(slots=True, eq=False)
class HostedTrial:
    """A trial that is queued or running. Raises `OSError` where its log can't be written."""

    trial: str
    model: Model
    log: TrialLog
    ended: asyncio.Future[TrialEnd]
    withdrawn: asyncio.Future[None]
    """Done when a person took it out of the queue."""
    slot: Slot | None = None
    phase: TrialPhase = TrialPhase.SETUP
    """What its worker said last; it is queued as long as it has no slot."""
    ended_because: str = ""
    """Why somebody else than the agent ended it, if somebody did."""
    after_cancel: str = ""
    """What verifiers does when it was cancelled."""
    paused: Literal["pause", "freeze"] | None = None
    held: bool = False
    """Somebody paused this very trial: that the whole run goes on does not concern it."""
    answering: set[asyncio.Task[None]] = field(default_factory=set)
    _waiting: list[Command] = field(default_factory=list)
    """Passed on to the worker, and not carried out yet."""

    async def answer(self, wanted: SampleWanted) -> Completion | CompletionFailed | Refused:
        """Ask the model, and log it."""
        self.log.append(TurnStarted(trial=self.trial, turn=wanted.turn, purpose=wanted.purpose))
        asked = time.monotonic()
        answer = await self.model.answer(wanted)
        if isinstance(answer, Completion):
            self.log.sampled(wanted, answer, time.monotonic() - asked)
        return answer

    def heard(self, message: FromWorker) -> None:
        """Log what the worker says of the trial."""
        match message:
            case PhaseEntered(trial, phase, detail):
                self.phase = phase
                if phase is TrialPhase.TEARDOWN and self.slot is not None:
                    self.slot.make_room()
                self.log.append(TrialPhaseChanged(trial=trial, phase=phase, detail=detail))
            case TurnUnderstood() | TurnSeen():
                self.log.append(turn_event(message))
            case PauseEntered(trial, frozen):
                self.paused = "freeze" if frozen else "pause"
                self.log.append(TrialPaused(trial=trial, frozen=frozen))
                verbs = ("pause", "freeze") if frozen else ("pause",)
                self._carried_out(verbs, f"{trial} {_STATE[self.paused]}")
            case PauseLeft(trial):
                self.paused = None
                self.log.append(TrialResumed(trial=trial))
                self._carried_out(("resume",), f"{trial} resumed")
            case ControlRefused(trial, verb, reason):
                if verb in _STATE:
                    self.held = False
                for command in self._take((verb,)):
                    self._done(command, False, f"{trial}: {reason}")
            case _:
                pass

    def standing(self, command: Command) -> Standing:
        """How it stands, for a command on it."""
        return Standing(
            self.trial,
            TrialPhase.QUEUED if self.slot is None else self.phase,
            paused=self.paused is not None,
            frozen=self.paused == "freeze",
            asker=command.actor,
            prime_rl=True,
        )

    def issued(self, command: Command) -> None:
        """Somebody asks something of this trial."""
        self.log.append(issued(command))
        self._waiting.append(command)

    def ends(self, command: Command) -> None:
        """A command that ends the trial is being carried out."""
        said = f": {command.reason}" if command.reason else ""
        self.ended_because = f"{_ENDING[command.verb]} by {command.actor}{said}"

    def holds(self, command: Command) -> bool:
        """Whether a command to pause or to freeze has to be passed on."""
        self.held = True
        if self.paused not in ("freeze", command.verb):
            return True
        self.answer_command(command, True, f"{self.trial} is {_STATE[self.paused]}")
        return False

    def releases(self, command: Command) -> None:
        """A command to resume is passed on; one that comes before the pause takes that back."""
        self.held = False
        if self.paused is None:
            for hold in self._take(_STATE):
                self._done(hold, False, f"{self.trial}: taken back by {command.actor}")
            self.answer_command(command, True, f"{self.trial} goes on")

    def answer_command(self, command: Command, ok: bool, result: str) -> None:
        """What came of it, where that is known at once."""
        self._waiting.remove(command)
        self._done(command, ok, result)

    def finished(self, end: TrialEnd, queued_sec: float) -> None:
        """Log the end; nothing may follow."""
        outcome, facts = end.decision.outcome, end.facts
        for command in self._take():
            ends = command.verb in _ENDING
            result = f"{self.trial} ended as {outcome}" + " first" * (not ends)
            if outcome is Outcome.CANCELLED and command.verb in ("cancel", "retry"):
                result = f"{result}; {self.after_cancel}"
            self._done(command, ends, result)
        seconds = facts.seconds if facts is not None else PhaseSeconds()
        self.log.append(
            TrialFinished(
                trial=self.trial,
                outcome=outcome,
                reason=end.decision.reason,
                verdict=end.decision.verdict,
                reward=end.decision.reward,
                turns=facts.turns if facts is not None else 0,
                seconds=seconds.model_copy(update={"queue": queued_sec}),
                verifier_output=facts.verifier_output if facts is not None else "",
            )
        )

    def end(self, end: TrialEnd) -> None:
        if not self.ended.done():
            self.ended.set_result(end)

    def fail(self, error: BaseException) -> None:
        """An error of ours: whoever waits for the trial gets it."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def _carried_out(self, verbs: Collection[str], result: str) -> None:
        for command in self._take(verbs):
            self._done(command, True, result)

    def _take(self, verbs: Collection[str] | None = None) -> list[Command]:
        taken = [c for c in self._waiting if verbs is None or c.verb in verbs]
        self._waiting = [c for c in self._waiting if c not in taken]
        return taken

    def _done(self, command: Command, ok: bool, result: str) -> None:
        self.log.append(CommandDone(command=command.id, ok=ok, result=result))
