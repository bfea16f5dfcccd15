"""One trial from its first prompt to its verdict, folded from that trial's own events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbtui.journal.events import AgentCommand, Entry, TrialFinished


@dataclass(slots=True)
class TurnView:
    """One model call and what came of it."""

    turn: int
    started_at: float
    purpose: str = "turn"
    """Else the call is no turn of the main agent: a step of summarising its history."""
    sample: int | None = None
    thinking: str = ""
    """What came before the text, between marks of its own."""
    text: str = ""
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    """Of the prompt; None where the sampler doesn't tell."""
    completion_tokens: int = 0
    mean_logprob: float | None = None
    model_seconds: float = 0.0
    analysis: str = ""
    plan: str = ""
    commands: tuple[AgentCommand, ...] = ()
    task_complete: bool = False
    error: str | None = None
    observation: str = ""
    command_seconds: float = 0.0


@dataclass(slots=True)
class Transcript:
    """`apply` it to more entries of the same trial as they come."""

    turns: list[TurnView] = field(default_factory=list)
    finished: TrialFinished | None = None
    seq: int = 0
    """Of the last event seen."""

    def apply(self, entries: Iterable[Entry]) -> bool:
        """Fold entries in; says whether anything changed."""
        # Not before the app's first frame, which needs no events.
        from tbtui.journal.events import (
            TrialFinished,
            TurnObserved,
            TurnParsed,
            TurnSampled,
            TurnStarted,
        )

        before = self.seq
        for entry in entries:
            self.seq = entry.seq
            match entry.event:
                case TurnStarted() as event:
                    self.turns.append(TurnView(event.turn, entry.time, event.purpose))
                case TurnSampled() as event if turn := self._turn(event.turn, event.purpose):
                    turn.sample, turn.text = event.sample, event.text
                    turn.thinking = event.thinking
                    turn.prompt_tokens = event.prompt_tokens
                    turn.cached_tokens = event.cached_tokens
                    turn.completion_tokens = event.completion_tokens
                    turn.mean_logprob, turn.model_seconds = event.mean_logprob, event.seconds
                case TurnParsed() as event if turn := self._turn(event.turn):
                    turn.analysis, turn.plan = event.analysis, event.plan
                    turn.commands, turn.task_complete = event.commands, event.task_complete
                    turn.error = event.error
                case TurnObserved() as event if turn := self._turn(event.turn):
                    turn.observation, turn.command_seconds = event.observation, event.seconds
                case TrialFinished() as event:
                    self.finished = event
                case _:
                    pass
        return self.seq != before

    def _turn(self, number: int, purpose: str = "turn") -> TurnView | None:
        sought = (number, purpose)
        return next((t for t in reversed(self.turns) if (t.turn, t.purpose) == sought), None)
