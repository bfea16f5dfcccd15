"""What holds a trial: one state, and one table of what each command makes of it.

People want a hold, and the trial's worker brings it about: a pause at the end of the turn, a
freeze once the sandbox's processes are stopped. A trial that is `RUNNING` and wanted `PAUSED` is
pausing, and one that is `FROZEN` and wanted `RUNNING` is being thawed. Worker and engine know both
holds; the journal, and with it the views, the one that the trial has reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

HoldState = Literal["running", "paused", "frozen", "typed_in", "ended"]
"""`paused` and `typed_in`: at the end of a turn; `frozen`: anywhere, the sandbox's processes are
stopped; `ended`: it is being ended, verified or torn down, which nothing holds."""

HoldVerb = Literal["pause", "freeze", "resume", "take_over", "give_back"]

_CHANGES: Mapping[HoldState, Mapping[HoldVerb, HoldState | None]] = MappingProxyType(
    {
        "running": {"pause": "paused", "freeze": "frozen", "take_over": "typed_in"},
        "paused": {"freeze": "frozen", "resume": "running", "take_over": "typed_in"},
        "frozen": {"resume": "running", "take_over": "typed_in"},
        "typed_in": {"freeze": "frozen", "resume": "running", "give_back": "paused"},
        "ended": {"pause": None, "freeze": None, "take_over": None},
    }
)
"""What each command changes, None: it is refused; the others change nothing. A trial can end from
each state."""


@dataclass(frozen=True, slots=True)
class Hold:
    """How a trial is held; `typist` types in its terminal."""

    state: HoldState
    typist: str = ""

    def __post_init__(self) -> None:
        if bool(self.typist) != (self.state == "typed_in"):
            raise ValueError(f"a trial that is {self.state}, typist {self.typist!r}")

    @property
    def paused(self) -> bool:
        """Whether the agent is held: paused, frozen or typed in."""
        return self.state in ("paused", "frozen", "typed_in")

    @property
    def frozen(self) -> bool:
        return self.state == "frozen"

    def after(self, verb: HoldVerb, typist: str = "") -> Hold | None:
        """The hold that a command leads to; None: it is refused, as nothing is held any more."""
        state = _CHANGES[self.state].get(verb, self.state)
        if state is None:
            return None
        if verb == "take_over":
            return typed_in(typist)
        return self if state == self.state else Hold(state)


RUNNING, PAUSED, FROZEN, ENDED = Hold("running"), Hold("paused"), Hold("frozen"), Hold("ended")


def typed_in(typist: str) -> Hold:
    """The hold in which `typist` types; without one it is a pause."""
    return Hold("typed_in", typist) if typist else PAUSED
