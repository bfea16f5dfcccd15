"""What is remembered of a trial in our plugin, from its own events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tbtui.engines.prime_rl.plugin.trial_log import ServerProcess
from tbtui.engines.prime_rl.watch.records import Trace
from tbtui.engines.prime_rl.watch.turns import Turn, turns_of
from tbtui.journal.events import (
    AnyEvent,
    Purpose,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialResumed,
    TurnSampled,
)

_DOING = {
    TrialPhase.QUEUED: "queued",
    TrialPhase.SETUP: "being set up",
    TrialPhase.MODEL: "waiting for the model",
    TrialPhase.ACTING: "acting",
    TrialPhase.PAUSED: "paused",
    TrialPhase.VERIFYING: "being verified",
    TrialPhase.TEARDOWN: "being torn down",
    TrialPhase.FINISHED: "over",
}


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A model call that the journal has, without its tokens."""

    turn: int
    purpose: str
    text: int
    """Its hash."""


@dataclass(slots=True)
class HostedState:
    task: str = ""
    purpose: Purpose = "train"
    step: int = 0
    written: int = 0
    """Lines of its log that were in the journal when the watcher started."""
    server: ServerProcess | None = None
    phase: TrialPhase = TrialPhase.QUEUED
    since: float = 0.0
    """When it entered the phase or the pause."""
    paused: bool = False
    calls: list[LoggedCall] = field(default_factory=list)
    finished: TrialFinished | None = None

    def follow(self, event: AnyEvent, at: float) -> None:
        match event:
            case TrialQueued():
                self.task, self.purpose, self.step = event.task, event.purpose, event.step
                self.since = at
            case TrialPhaseChanged(phase=phase):
                self.phase, self.since = phase, at
            case TrialPaused():
                self.paused, self.since = True, at
            case TrialResumed():
                self.paused, self.since = False, at
            case TurnSampled():
                self.calls.append(LoggedCall(event.turn, event.purpose, _text_hash(event.text)))
            case TrialFinished():
                self.finished = event
            case _:
                pass

    @property
    def doing(self) -> str:
        """What it does or waits for, in a word or two."""
        return "paused" if self.paused else _DOING[self.phase]


def _text_hash(text: str) -> int:
    """Of a completion, to tell it again; the ends are left out, which not everybody keeps."""
    return hash(text.strip())


def pairs(calls: Sequence[LoggedCall], trace: Trace) -> Iterator[tuple[LoggedCall, Turn | None]]:
    """The calls with their turns in the trace; None: the trace says something else there.

    Both tell of a trial's calls in their order. The trace may have one more, whose answer never
    reached the agent.
    """
    for call, turn in zip(calls, turns_of(trace.nodes, trace.calls), strict=False):
        yield call, turn if call.text == _text_hash(turn.text) else None
