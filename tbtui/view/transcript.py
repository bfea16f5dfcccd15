"""One trial from its first prompt to its verdict, folded from its own events."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from tbtui.journal.commands import readable
from tbtui.journal.events import (
    AgentCommand,
    Entry,
    ForksStarted,
    HumanMessaged,
    HumanTyped,
    SideCall,
    ToolUse,
    TrialFinished,
    TrialQueued,
    TrialTraced,
    TurnObserved,
    TurnParsed,
    TurnSampled,
    TurnStarted,
    TurnWriting,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

PERSON = "person"
"""The purpose of a turn in which a person typed: their name is its plan, the keys its text."""
TO_AGENT = "to the agent: "
"""Before what a person wrote to the agent, in such a turn's text."""


@dataclass(slots=True)
class TurnView:
    """One model call and what came of it."""

    turn: int
    started_at: float
    purpose: str = "turn"
    """Else the call is no turn of the main agent: a step of summarising its history."""
    side: bool = False
    """It has no tools, beside a conversation that has them: a title, a summary, a check."""
    sample: int | None = None
    prompt: str = ""
    """What was new in its prompt, as text."""
    writing: str = ""
    """What the model has written before the answer is whole."""
    drawn: int = 0
    """The tokens of that."""
    thinking: str = ""
    """What came before the text, between marks of its own."""
    text: str = ""
    tool_calls: tuple[ToolUse, ...] = ()
    """Calls of the agent's own tools; `commands` has them as lines."""
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    """Prompt tokens in the sampler's cache; None where it doesn't report them."""
    completion_tokens: int = 0
    mean_logprob: float | None = None
    model_seconds: float = 0.0
    analysis: str = ""
    plan: str = ""
    commands: tuple[AgentCommand, ...] = ()
    task_complete: bool = False
    error: str | None = None
    warning: str | None = None
    observation: str = ""
    command_seconds: float = 0.0
    parsed_at: float | None = None
    """When its first command went to the terminal. Seconds since the epoch, as all times here."""
    ended_at: float | None = None
    """When the terminal had answered, or the trial ended."""
    of: str = ""
    """The trial that a fork shares it with; empty: it is the trial's own."""
    run: Path | None = None
    """The run that is of, where it is another one."""

    def command_at(self, index: int) -> float | None:
        """When a command had had its time, by what the agent gave those up to it."""
        if self.parsed_at is None:
            return None
        waited = sum(command.duration_sec for command in self.commands[: index + 1])
        at = self.parsed_at + waited
        return at if self.ended_at is None else min(at, self.ended_at)


@dataclass(slots=True)
class Transcript:
    """A trial's turns and its end. `apply` further entries of the trial as they come."""

    turns: list[TurnView] = field(default_factory=list)
    finished: TrialFinished | None = None
    seq: int = 0
    """The last event's."""
    _sides: set[int] = field(default_factory=set)
    """Turns beside the agent's conversation, which may not have begun."""

    @property
    def least_likely(self) -> int | None:
        """The place of the main agent's turn with the highest mean -log p; None: of none is it
        known."""
        known = [
            (turn.mean_logprob, place)
            for place, turn in enumerate(self.turns)
            if turn.sample is not None and turn.mean_logprob is not None and turn.purpose == "turn"
        ]
        return min(known)[1] if known else None

    def turn_at(self, time: float) -> int | None:
        """The place of the turn that was under way at a time; None: before the first one."""
        begun = sum(1 for turn in self.turns if turn.started_at < time)
        return begun - 1 if begun else None

    def apply(self, entries: Iterable[Entry]) -> bool:
        """Fold entries in; says whether anything changed."""
        before = self.seq
        for entry in entries:
            self.seq = entry.seq
            match entry.event:
                case TurnStarted() as event:
                    started = TurnView(event.turn, entry.time, event.purpose, prompt=event.prompt)
                    started.side = event.turn in self._sides
                    self.turns.append(started)
                case TurnWriting() as event if turn := self._turn(event.turn):
                    turn.writing = turn.writing * bool(event.before) + event.text
                    turn.drawn = event.before + event.tokens
                case TurnSampled() as event if turn := self._turn(event.turn, event.purpose):
                    turn.sample, turn.text = event.sample, event.text
                    turn.writing = ""
                    turn.thinking, turn.tool_calls = event.thinking, event.tool_calls
                    turn.prompt_tokens = event.prompt_tokens
                    turn.cached_tokens = event.cached_tokens
                    turn.completion_tokens = event.completion_tokens
                    turn.mean_logprob, turn.model_seconds = event.mean_logprob, event.seconds
                case TurnParsed() as event if turn := self._turn(event.turn):
                    turn.analysis, turn.plan = event.analysis, event.plan
                    turn.commands, turn.task_complete = event.commands, event.task_complete
                    turn.error, turn.warning = event.error, event.warning
                    turn.parsed_at = entry.time
                case TurnObserved() as event if turn := self._turn(event.turn):
                    turn.observation, turn.command_seconds = event.observation, event.seconds
                    turn.ended_at = entry.time
                case SideCall() as event:
                    self._sides.add(event.turn)
                    for each in self.turns:
                        each.side = each.turn in self._sides
                case (HumanTyped() | HumanMessaged()) as event:
                    self._typed(event, entry.time)
                case TrialFinished() as event:
                    self.finished = event
                    if self.turns and self.turns[-1].ended_at is None:
                        self.turns[-1].ended_at = entry.time
                case TrialTraced() as event:
                    self._traced(event)
                case _:
                    pass
        return self.seq != before

    def _typed(self, event: HumanTyped | HumanMessaged, time: float) -> None:
        """All that one person types before the agent goes on is one turn of theirs."""
        last = self.turns[-1] if self.turns else None
        if last is None or (last.purpose, last.plan) != (PERSON, event.actor):
            last = TurnView(last.turn if last else 0, time, PERSON, plan=event.actor)
            self.turns.append(last)
        if isinstance(event, HumanMessaged):
            last.text += f"{TO_AGENT}{event.text}\n"
        else:
            last.text += readable(event.parts)
        last.ended_at = time

    def _traced(self, event: TrialTraced) -> None:
        for call in event.calls:
            if turn := self._turn(call.turn, call.purpose):
                turn.sample, turn.mean_logprob = call.sample, call.mean_logprob
                turn.prompt_tokens = call.prompt_tokens
                turn.cached_tokens = call.cached_tokens
                turn.completion_tokens = call.completion_tokens

    def _turn(self, number: int, purpose: str = "turn") -> TurnView | None:
        sought = (number, purpose)
        return next((t for t in reversed(self.turns) if (t.turn, t.purpose) == sought), None)


def shared_turns(reader: JournalReader, trial: str) -> list[TurnView]:
    """The turns that a fork shares with its parent, the parent's own and those that it shares.

    None for a trial that is no fork, or whose parent is in a run that is gone.
    """
    queued = next(
        (e.event for e in reader.read_trial(trial) if isinstance(e.event, TrialQueued)), None
    )
    if queued is None or not queued.parent:
        return []
    started = (entry.event for entry in reader.each(["forks_started"]))
    groups = (e for e in started if isinstance(e, ForksStarted) and e.group == queued.group)
    elsewhere = next((each.parent_run for each in groups), "")
    if not elsewhere:
        return _up_to(reader, queued, None)
    run = RunDirectory(Path(elsewhere))
    if not run.database.is_file():
        return []
    with closing(JournalReader(run, lenient=True)) as parents:
        return _up_to(parents, queued, run.path)


def _up_to(reader: JournalReader, fork: TrialQueued, run: Path | None) -> list[TurnView]:
    transcript = Transcript(shared_turns(reader, fork.parent))
    transcript.apply(reader.read_trial(fork.parent))
    turns = [turn for turn in transcript.turns if turn.turn < fork.fork_turn]
    for turn in turns:
        turn.of = turn.of or fork.parent
        turn.run = turn.run or run
        if run is not None:
            turn.sample = None  # its tokens are in the other journal
    return turns


_LIST = '"commands"'


def command_tokens(pieces: Sequence[str], commands: Sequence[AgentCommand]) -> list[range | None]:
    """The tokens of each command's keystrokes; None: they don't stand there as they are.

    `pieces`: the text of each token.
    """
    text = "".join(pieces)
    ends = list(accumulate(len(piece) for piece in pieces))
    # What the agent plans may quote a command.
    place = max(0, text.find(_LIST))
    found: list[range | None] = []
    for command in commands:
        span = _span(text, command.keystrokes, place)
        if span is None:
            found.append(None)
            continue
        place = span[1]
        found.append(range(bisect_right(ends, span[0]), bisect_left(ends, span[1]) + 1))
    return found


def _span(text: str, keystrokes: str, start: int) -> tuple[int, int] | None:
    """Where a string stands in a JSON text, however that writes what is not ASCII."""
    if not keystrokes:
        return None
    for ascii_only in (False, True):
        written = json.dumps(keystrokes, ensure_ascii=ascii_only)
        at = text.find(written, start)
        if at >= 0:
            return at + 1, at + len(written) - 1
    return None
