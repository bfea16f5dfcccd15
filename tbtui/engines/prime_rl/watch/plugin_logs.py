"""Reads what our plugin's environment servers log of their trials, `events/TRIAL.jsonl`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tbtui.engines.prime_rl.plugin.files import FOLDER, ServerProcess
from tbtui.engines.prime_rl.watch.formats import Trace
from tbtui.engines.prime_rl.watch.tail import Tails
from tbtui.engines.prime_rl.watch.turns import Turn, turns_of
from tbtui.journal.events import (
    AnyEvent,
    EventError,
    Purpose,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialResumed,
    TurnSampled,
    decode_any,
)

_LOOKS_AFTER_CHANGE = 8
"""Changes that follow each other at once may have the same modification time."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One line of a trial's log."""

    at: float
    event: AnyEvent
    server: ServerProcess | None


class _Line(msgspec.Struct):
    time: float
    event: msgspec.Raw
    server: ServerProcess | None = None


_LINE = msgspec.json.Decoder(_Line)


class PluginLogs:
    """The logs in `directory`, which may not be there yet. Only reads."""

    def __init__(self, directory: Path, tails: Tails) -> None:
        self._folder = directory / FOLDER
        self._tails = tails
        self._known: set[str] = set()
        self._modified = 0
        self._looks = 0
        self.bad_lines = 0

    def new(self) -> list[str]:
        """Trials whose log has appeared since the last call, in the order of their names."""
        try:
            modified = self._folder.stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return []
        self._looks = self._looks + 1 if modified == self._modified else 0
        self._modified = modified
        if self._looks > _LOOKS_AFTER_CHANGE:
            return []
        names = os.listdir(self._folder)  # noqa: PTH208 - names alone, at a third the cost
        found = {name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")}
        fresh = sorted(found - self._known)
        self._known |= found
        return fresh

    def read(self, trial: str) -> Iterator[Logged]:
        """Read what is new in a trial's log. A line that is no event is counted and left out."""
        path, more = self._path(trial), True
        while more:
            # A restarted watcher counts the lines again.
            lines, more = self._tails.read(path, remember=False)
            for line in lines:
                if (logged := self._parse(line)) is not None:
                    yield logged

    def close(self, trial: str) -> None:
        """Close a trial's log: nothing more is expected."""
        self._tails.close(self._path(trial))

    def _path(self, trial: str) -> Path:
        return self._folder / f"{trial}.jsonl"

    def _parse(self, line: bytes) -> Logged | None:
        try:
            record = _LINE.decode(line)
            return Logged(record.time, decode_any(bytes(record.event)), record.server)
        except (msgspec.DecodeError, EventError, UnicodeDecodeError):
            self.bad_lines += 1
            return None


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
class PluginTrial:
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
        """What it does or waits for, in a few words."""
        return "paused" if self.paused else _DOING[self.phase]


def _text_hash(text: str) -> int:
    """Identify a completion by its text, less white space at its ends: the trace may drop that."""
    return hash(text.strip())


def pairs(calls: Sequence[LoggedCall], trace: Trace) -> Iterator[tuple[LoggedCall, Turn | None]]:
    """The calls with their turns in the trace; None: the trace has another text there.

    Both are in the order of the calls. The trace may have one more, whose answer never reached the
    agent.
    """
    for call, turn in zip(calls, turns_of(trace.nodes, trace.calls), strict=False):
        yield call, turn if call.text == _text_hash(turn.text) else None
