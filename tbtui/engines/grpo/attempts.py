"""The attempts at trials that are queued or running, and the places in groups that they fill."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tbtui.engines.grpo.admission import Slot
from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.sampling import Conversation
from tbtui.journal.vocabulary import TrialPhase
from tbtui.rollout.messages import TrialFacts
from tbtui.rollout.outcome import Decision


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """What an attempt came to. `facts` is None when its worker died under it."""

    decision: Decision
    facts: TrialFacts | None
    incident: str | None = None
    """Names what took several trials at once."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a trial: queued until it has a slot."""

    trial: str
    plan: TrialPlan
    conversation: Conversation
    patience_sec: float
    """How long the policy may take for one completion."""
    ended: asyncio.Future[TrialEnd]
    withdrawn: asyncio.Future[None]
    """Done when it is not wanted any more, queued or running."""
    slot: Slot | None = None
    phase: TrialPhase = TrialPhase.SETUP
    """What its worker said last; it is queued as long as it has no slot."""
    paused: Literal["pause", "freeze"] | None = None
    held: bool = False
    """Somebody paused this very trial: that the whole run goes on does not concern it."""
    typist: str = ""
    """Who has taken it over, or will have at its next turn boundary."""
    taken: bool = False
    """It stands, and the typist may type."""
    ended_because: str | None = None
    """Why it was cancelled, if it was."""
    commands: list[str] = field(default_factory=list)
    """Keystrokes that the agent has sent."""


@dataclass(slots=True, eq=False)
class Place:
    """One place in a group, filled by one attempt after the other."""

    plan: TrialPlan
    attempt: Attempt | None = None
    again: str | None = None
    """Somebody wants a fresh attempt, and why."""
    final: asyncio.Event = field(default_factory=asyncio.Event)
    """No further attempt is made."""
    end: TrialEnd | None = None
    """What its last attempt came to."""
    late: bool = False
    """Its step's deadline passed while somebody held it."""


class Attempts:
    """All that are queued or running."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], Place] = {}
        self._filled: dict[str, Place] = {}
        self._rested = asyncio.Event()
        """One more is paused or over."""

    def open_place(self, place: Place) -> None:
        self._places[place.plan.key] = place

    def close_place(self, place: Place) -> None:
        # A place that somebody wants tried again after its end is opened anew, by another task.
        if self._places.get(place.plan.key) is place:
            del self._places[place.plan.key]

    def place(self, plan: TrialPlan) -> Place | None:
        return self._places.get(plan.key)

    def fill(self, place: Place, attempt: Attempt) -> None:
        place.attempt = attempt
        self._filled[attempt.trial] = place

    def vacate(self, place: Place, attempt: Attempt) -> None:
        place.attempt = None
        del self._filled[attempt.trial]
        self._rested.set()

    def mark(self, attempt: Attempt, paused: Literal["pause", "freeze"] | None) -> None:
        attempt.paused = paused
        self._rested.set()

    async def at_rest(self) -> None:
        """Until each is queued or paused."""
        while any(attempt.slot is not None and not attempt.paused for attempt in self):
            self._rested.clear()
            await self._rested.wait()

    def find(self, trial: str) -> tuple[Place, Attempt] | None:
        place = self._filled.get(trial)
        return (place, place.attempt) if place and place.attempt else None

    def get(self, trial: str) -> Attempt | None:
        found = self.find(trial)
        return found[1] if found else None

    def __iter__(self) -> Iterator[Attempt]:
        return iter([place.attempt for place in self._filled.values() if place.attempt])
