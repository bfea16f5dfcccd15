"""Trials that are queued or running: their places, and the attempts that fill them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tbtui.engines.trials.admission import Slot
from tbtui.journal.events import PhaseSeconds, Purpose, TrialFinished, TrialPhase
from tbtui.journal.hold import RUNNING, Hold, HoldVerb
from tbtui.rollout.messages import (
    Completion,
    CompletionFailed,
    Demonstrated,
    SampleWanted,
    TrialFacts,
)
from tbtui.rollout.outcome import Decision


class Planned(Protocol):
    """The facts about a place's trial that steering needs."""

    @property
    def label(self) -> str:
        """Its name for a person."""
        ...

    @property
    def purpose(self) -> Purpose: ...


class TrialModel(Protocol):
    """Answers the model calls of one trial's agent."""

    async def answer(self, wanted: SampleWanted) -> Completion | CompletionFailed | None:
        """The answer for the agent; None: it gets none, because its run is being ended.

        What it raises is no failure of the model but ours.
        """
        ...

    def abandoned(self, turn: int) -> None:
        """The agent didn't take the answer of this turn, which may still be to come."""
        ...

    def side_call(self, turn: int) -> None:
        """This turn, which may still be asked, has no tools beside a conversation that has them."""
        ...

    def typed_in(self) -> None:
        """A person has typed in the trial."""
        ...

    def demonstrated(self, message: Demonstrated, actor: str) -> None:
        """What a person has typed stands in the place of its next answer."""
        ...


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How an attempt ended. `facts` is None where it never began, or its worker died."""

    decision: Decision
    facts: TrialFacts | None
    incident: str | None = None
    """Names what ended several trials at once."""

    def because(self, reason: str) -> TrialEnd:
        """The same end, with another reason."""
        return dataclasses.replace(self, decision=dataclasses.replace(self.decision, reason=reason))

    def event(self, attempt: Attempt, reward: float | None, turns: int = 0) -> TrialFinished:
        """The end as an event.

        Args:
            reward: the one in force.
            turns: how many there were, where there are no facts.
        """
        facts = self.facts
        seconds = facts.seconds if facts is not None else PhaseSeconds()
        return TrialFinished(
            trial=attempt.trial,
            outcome=self.decision.outcome,
            reason=self.decision.reason,
            verdict=self.decision.verdict,
            reward=reward,
            earned=self.decision.reward,
            turns=facts.turns if facts is not None else turns,
            seconds=msgspec.structs.replace(seconds, queue=attempt.queued_sec),
            ended_at=time.time(),
            verifier_output=facts.verifier_output if facts is not None else "",
        )


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a trial: queued until it has a slot."""

    trial: str
    step: int
    """Attempts of earlier steps start first."""
    model: TrialModel
    ended: asyncio.Future[TrialEnd] = field(default_factory=_future)
    withdrawn: asyncio.Future[None] = field(default_factory=_future)
    """Done when it is not wanted any more, queued or running."""
    slot: Slot | None = None
    phase: TrialPhase = TrialPhase.SETUP
    """What its worker reported last; without a slot, it is queued."""
    queued_sec: float = 0.0
    """How long it waited for its slot."""
    hold: Hold = RUNNING
    """What its worker reported last."""
    wanted: Hold = RUNNING
    """What people have asked of this very trial, which stays so when the whole run goes on."""
    ended_because: str | None = None
    """Why a person, or its batch, ended it."""
    typed_by: str = ""
    """Who typed last."""
    keystrokes: list[str] = field(default_factory=list)
    """What the agent has sent, a command each."""

    @property
    def typist(self) -> str:
        """Who types in it, or is to at its next turn boundary."""
        return self.hold.typist or self.wanted.typist

    def want(self, verb: HoldVerb, actor: str = "") -> None:
        """Note what a person asks of this very trial."""
        self.wanted = self.wanted.after(verb, actor) or self.wanted

    def end(self, end: TrialEnd) -> None:
        """Set the attempt's end; the first one counts."""
        if not self.ended.done():
            self.ended.set_result(end)

    def fail(self, error: BaseException) -> None:
        """Raise `error` where its end is awaited."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # while it is queued, nothing awaits it


@dataclass(slots=True, eq=False)
class Place[T: Planned]:
    """A place for one trial, filled by one attempt after the other."""

    plan: T
    attempt: Attempt | None = None
    again: str | None = None
    """Why a person wants a fresh attempt; None: none is wanted."""
    final: asyncio.Event = field(default_factory=asyncio.Event)
    """No further attempt is made."""
    late: bool = False
    """Its step's deadline passed while a person held it."""

    @property
    def trial(self) -> str:
        """The attempt that fills it now; empty: none does, before the first and between two."""
        return self.attempt.trial if self.attempt else ""


class Attempts:
    """The attempts that are queued or running, with their places."""

    def __init__(self) -> None:
        self._filled: dict[str, Place[Any]] = {}
        self._rested = asyncio.Event()
        """One more is paused or over."""

    def fill(self, place: Place[Any], attempt: Attempt) -> None:
        place.attempt = attempt
        self._filled[attempt.trial] = place

    def vacate(self, place: Place[Any], attempt: Attempt) -> None:
        place.attempt = None
        del self._filled[attempt.trial]
        self._rested.set()

    def mark(self, attempt: Attempt, hold: Hold) -> None:
        attempt.hold = hold
        self._rested.set()

    async def at_rest(self) -> None:
        """Wait until each is queued or paused."""
        while any(attempt.slot is not None and not attempt.hold.paused for attempt in self):
            self._rested.clear()
            await self._rested.wait()

    def find(self, trial: str) -> tuple[Place[Any], Attempt] | None:
        place = self._filled.get(trial)
        return (place, place.attempt) if place and place.attempt else None

    def get(self, trial: str) -> Attempt | None:
        found = self.find(trial)
        return found[1] if found else None

    def __iter__(self) -> Iterator[Attempt]:
        return iter([place.attempt for place in self._filled.values() if place.attempt])
