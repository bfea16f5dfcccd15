"""What a fork is given, and what it reports: a trial that begins at a turn of another one.

The turns before it are the other trial's: their conversation is taken over word for word, and the
sandbox is brought to where it stood then, from a snapshot or by typing the recorded keys again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.chat import Message
from tbtui.journal.commands import Typed
from tbtui.journal.events import AgentCommand

ForkWay = Literal["start", "snapshot", "replay"]
"""How the state was reached: there was nothing to reach (turn 1), a snapshot was restored, or the
recorded keys were typed again, be it after a snapshot of an earlier turn."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Which states of a trial are kept, and where."""

    directory: Path
    every: int
    """Turns; 1: before each."""
    max_bytes: int


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One call of the main agent, and what came of it in the terminal."""

    turn: int
    prompt: str
    """The user's part that is new in it."""
    answer: str
    commands: tuple[AgentCommand, ...] = ()
    screen: str | None = None
    """What the agent was shown after the commands; None: nothing was executed."""
    complete: bool = False
    """The answer declares the task complete."""
    typed: tuple[Typed, ...] = ()
    """What a person typed before the turn's prompt was made."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The turn at which a fork begins: the first that is its own."""

    trial: str
    """The trial that it forks."""
    turn: int
    turns: tuple[RecordedTurn, ...] = ()
    """The shared ones, 1 to `turn` - 1."""
    prompt: str = ""
    """The recorded prompt of `turn`; empty for turn 1, whose prompt the fork makes itself."""
    typed: tuple[Typed, ...] = ()
    """What a person typed before `turn`."""
    spent_sec: float = 0.0
    """Active seconds that the shared turns took."""
    snapshots: tuple[Path, ...] = ()
    """Directories of the forked trials' snapshots, the nearest first; they need not exist."""
    go_on: bool = False
    """Go on where a screen differs from the recorded one."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The shared conversation, without the prompt of `turn`."""
        said = ((Message("user", t.prompt), Message("assistant", t.answer)) for t in self.turns)
        return tuple(message for pair in said for message in pair)

    @property
    def pending_completion(self) -> bool:
        """Whether the agent has been asked to confirm that the task is complete."""
        pending = False
        for turn in self.turns:
            if turn.screen is not None:  # an answer that can't be read changes nothing
                pending = turn.complete
        return pending


@dataclass(frozen=True, slots=True)
class ForkReport:
    """How a fork's state was reached, and how faithfully."""

    way: ForkWay
    snapshot_turn: int | None = None
    """The turn whose snapshot was restored: the state just before it."""
    replayed: int = 0
    """Turns whose keys were typed again."""
    parted: tuple[int, ...] = ()
    """Turns after which the screen was not the recorded one."""
    difference: str = ""
    """What differs after the first of these, one line."""
    lost: tuple[str, ...] = ()
    """Processes that ran when the snapshot was taken, and don't now."""
    seconds: float = 0.0


class ForkPartedError(Exception):
    """The recorded keys lead elsewhere than they did; the message says at which turn."""

    def __init__(self, message: str, report: ForkReport) -> None:
        super().__init__(message)
        self.report = report
