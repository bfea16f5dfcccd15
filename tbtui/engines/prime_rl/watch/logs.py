"""What the logs of Prime-RL's parts tell: where each is, what worried it, and why it died.

The lines are loguru's, as prime-rl 559b447 writes them, coloured or as JSON, behind torchrun's
prefix in the trainer's log; vLLM's have a form of their own.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Literal

import msgspec

Part = Literal["inference", "orchestrator", "trainer"]
PARTS: tuple[Part, ...] = ("inference", "orchestrator", "trainer")

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\[\w+\]:\s?")
_LOGURU = re.compile(r"^\d\d:\d\d:\d\d\s+(\w+)\s+(.*)$")
_VLLM = re.compile(r"^(?:\([^)]*\)\s*)?(INFO|WARNING|ERROR|CRITICAL)\s+\d\d-\d\d \S+ (.*)$")
_FATAL = re.compile(
    r"Fatal error in |EngineDeadError|Engine core initialization failed|ChildFailedError"
    r"|Orchestrator interrupted after"
)
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b")
_FRAME = re.compile(r"^\s*(?:> )?File \"|^\s+[│└]|^Traceback \(most recent call last\)")
_REMEMBERED = 60
_TOLD = 8
_MAX_KINDS = 1000


class _JsonLine(msgspec.Struct):
    level: str = ""
    message: str = ""
    exception: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    level: str
    """Empty: it goes on from the line before, as tracebacks do."""
    text: str


def read_line(raw: bytes) -> list[LogLine]:
    """A line of a log; one of JSON may hold a whole traceback."""
    text = _RANK.sub("", _COLOUR.sub("", raw.decode("utf-8", "replace")).rstrip())
    if text.startswith('{"timestamp"'):
        try:
            line = msgspec.json.decode(text, type=_JsonLine)
        except msgspec.DecodeError:
            return [LogLine("", text)]
        return [
            LogLine(line.level, line.message),
            *(LogLine("", each) for each in line.exception.splitlines()),
        ]
    if match := _LOGURU.match(text) or _VLLM.match(text):
        return [LogLine(match[1], match[2].strip())]
    return [LogLine("", text)]


class LastLines:
    """The end of one part's log, and whether it tells of a crash."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_REMEMBERED)
        self._fatal: deque[str] | None = None

    @property
    def crashed(self) -> bool:
        return self._fatal is not None

    def add(self, line: LogLine) -> None:
        if line.text.strip():
            self._lines.append(line.text)
            if self._fatal is not None:
                self._fatal.append(line.text)
        if self._fatal is None and line.level != "INFO" and _FATAL.search(line.text):
            self._fatal = deque([line.text], maxlen=_REMEMBERED)

    def clear(self) -> None:
        """Another attempt has begun."""
        self._lines.clear()
        self._fatal = None

    def relevant(self) -> list[str]:
        """Of the crash, else of the end: the lines that say most, in their order."""
        lines = list(self._fatal or self._lines)
        telling = [line.strip() for line in lines if not _FRAME.match(line)]
        return telling[-_TOLD:]

    def cause(self) -> str:
        """One line: the exception that ended it, or its last line."""
        lines = list(self._fatal or self._lines)
        raised = [line.strip() for line in lines if _RAISED.match(line.strip())]
        return raised[-1] if raised else lines[-1].strip() if lines else "its log is empty"


@dataclass(slots=True)
class _Kind:
    told: float
    more: int = 0


class Warnings:
    """Warnings, but each kind of them not more often than once in `every_sec`."""

    _VARYING = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d+(?:\.\d+)?|'[^']*'")
    _TOLD_ELSEWHERE = ("Trace failed in group", "Episode task failed in group")
    """A trial's end tells the same."""

    def __init__(self, every_sec: float = 60.0) -> None:
        self._every = every_sec
        self._kinds: dict[str, _Kind] = {}

    def tell(self, text: str, now: float) -> str | None:
        """What to say of a warning; None: nothing now. `now` in seconds, of any clock."""
        if text.startswith(self._TOLD_ELSEWHERE):
            return None
        key = self._VARYING.sub("#", text)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            self._kinds[key] = _Kind(now)
            return text
        if now - kind.told < self._every:
            kind.more += 1
            return None
        more, kind.told, kind.more = kind.more, now, 0
        return f"{text} (and {more} like it before)" if more else text
