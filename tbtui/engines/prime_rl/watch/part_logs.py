"""What the logs of Prime-RL's parts say: where each part stands, what it waits for, its warnings,
and why it died.

The lines are loguru's, as prime-rl 559b447 writes them, coloured or as JSON, behind torchrun's
prefix in the trainer's log; vLLM's have a form of their own.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Literal

import msgspec

from tbtui.journal.events import RunPhase

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
_SHOWN = 8
_MAX_KINDS = 1000


class _JsonLine(msgspec.Struct):
    level: str = ""
    message: str = ""
    exception: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    level: str
    """Empty: it continues the line before, as in a traceback."""
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
    """The end of one part's log, and whether it reports a crash."""

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

    def relevant(self) -> list[str]:
        """The most informative lines of the crash, else of the end, in order."""
        lines = list(self._fatal or self._lines)
        informative = [line.strip() for line in lines if not _FRAME.match(line)]
        return informative[-_SHOWN:]

    def cause(self) -> str:
        """One line: the exception that ended it, or its last line."""
        lines = list(self._fatal or self._lines)
        raised = [line.strip() for line in lines if _RAISED.match(line.strip())]
        return raised[-1] if raised else lines[-1].strip() if lines else "its log is empty"


@dataclass(slots=True)
class _Kind:
    shown: float
    """When it was shown last."""
    more: int = 0
    """Not shown since."""


class WarningLimiter:
    """Limits warnings: each kind is shown at most once in `every_sec`."""

    _VARYING = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d+(?:\.\d+)?|'[^']*'")
    _SHOWN_ELSEWHERE = ("Trace failed in group", "Episode task failed in group")
    """A trial's end says the same."""

    def __init__(self, every_sec: float = 60.0) -> None:
        self._every = every_sec
        self._kinds: dict[str, _Kind] = {}

    def limited(self, text: str, now: float) -> str | None:
        """The warning to show; None: none now. `now`: in seconds, of any clock."""
        if text.startswith(self._SHOWN_ELSEWHERE):
            return None
        key = self._VARYING.sub("#", text)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            self._kinds[key] = _Kind(now)
            return text
        if now - kind.shown < self._every:
            kind.more += 1
            return None
        more, kind.shown, kind.more = kind.more, now, 0
        return f"{text} (and {more} like it before)" if more else text


_BATCH = re.compile(r"Train batch (\d+)/(\d+)")
_BUFFERED = re.compile(r"\(\+(\d+) buffered\)")
_INFLIGHT = re.compile(r"(\d+) (?:total )?inflight")
_HOLDING = re.compile(r"Holding batch (\d+) until the trainer publishes policy v(\d+)")
_BROADCAST = re.compile(r"waiting for trainer to broadcast checkpoint (\d+)")
_SHIPPED = re.compile(r"Step (\d+) \|")
_RESUMED = re.compile(r"Resuming orchestrator from checkpoint step (\d+)")
_EVALS = re.compile(r"Starting evals in (.+) \((\d+) total rollouts\)")


@dataclass(frozen=True, slots=True)
class Files:
    """What is in the run directory."""

    broadcast_begun: int | None = None
    """The newest version of the weights that the trainer began to write."""
    broadcast_whole: int | None = None
    """The newest that it has written."""
    silent: tuple[Part, ...] = ()
    """Parts without a log."""


@dataclass(slots=True)
class Pipeline:
    """The state of the parts, folded from their log lines."""

    server_ready: bool = False
    looping: bool = False
    """The orchestrator hands out rollouts."""
    batch: tuple[int, int] | None = None
    """Rollouts of the batch under way, and how many it needs."""
    buffered: int = 0
    inflight: int | None = None
    gated: bool = False
    """No rollout starts until there are new weights."""
    holding: tuple[int, int] | None = None
    """A batch that waits, and the version that it waits for."""
    broadcast: int | None = None
    """The orchestrator waits for the trainer to have written this version."""
    evaluating: str = ""
    evaluation: int = 0
    """Trials of that evaluation."""
    shipped: int = 0
    """The last batch handed to the trainer."""
    trained: int = 0
    """The last step that the trainer finished."""
    trainer_ready: bool = False
    orchestrator_over: bool = False
    trainer_over: bool = False
    resumed_from: int | None = None
    """Set when the orchestrator has said from which checkpoint it goes on; 0: from the start."""

    @property
    def over(self) -> bool:
        return self.orchestrator_over and self.trainer_over

    def add(self, part: Part, line: LogLine) -> bool:
        """Take in a line. Returns whether it reports progress."""
        if part == "orchestrator":
            return self._orchestrator(line.text)
        if part == "trainer":
            return self._trainer(line.text)
        return False

    def _orchestrator(self, text: str) -> bool:
        if match := _BATCH.search(text):
            buffered, inflight = _BUFFERED.search(text), _INFLIGHT.search(text)
            before = (self.batch, self.buffered)
            self.batch = int(match[1]), int(match[2])
            self.buffered = int(buffered[1]) if buffered else 0
            self.inflight = int(inflight[1]) if inflight else None
            return before != (self.batch, self.buffered)
        if match := _HOLDING.search(text):
            self.holding = int(match[1]), int(match[2])
        elif match := _BROADCAST.search(text):
            self.broadcast = int(match[1])
        elif match := _SHIPPED.match(text):
            self.shipped, self.holding, self.batch = int(match[1]), None, None
        elif match := _RESUMED.search(text):
            self.resumed_from = int(match[1])
        elif match := _EVALS.search(text):
            self.evaluating, self.evaluation = match[1], int(match[2])
        elif text.startswith("Training from scratch"):
            self.resumed_from = 0
        elif text.startswith("Evaluated "):
            self.evaluating = ""
        elif text.startswith("Pausing dispatcher"):
            self.gated = True
        elif text.startswith("Resuming dispatcher"):
            self.gated = False
        elif text.startswith("Policy inference pool ready"):
            self.server_ready = True
        elif text.startswith("Starting orchestrator loop"):
            self.looping = True
        elif text.startswith("Orchestrator finished"):
            self.orchestrator_over = True
        else:
            return False
        return True

    def _trainer(self, text: str) -> bool:
        if match := _SHIPPED.match(text):
            self.trained = int(match[1])
        elif text.startswith("Starting training loop"):
            self.trainer_ready = True
        elif text.startswith("RL trainer finished"):
            self.trainer_over = True
        else:
            return False
        return True

    def phase(self) -> tuple[RunPhase, str]:
        """What the whole run is doing, and a detail."""
        if not self.looping:
            return RunPhase.STARTING, self._starting()
        if self.shipped > self.trained:
            return RunPhase.TRAINING, f"step {self.trained + 1}"
        if self.evaluating:
            return RunPhase.EVALUATING, self.evaluating
        return RunPhase.SAMPLING, self._batch_words()

    def waiting_for(self, files: Files) -> str:
        """Why there is no progress, as far as logs and files show."""
        if files.silent and not self.looping:
            return f"{' and '.join(files.silent)} never wrote a log"
        if not self.looping:
            return f"the start isn't over: {self._starting()}"
        begun, whole = files.broadcast_begun, files.broadcast_whole
        if begun is not None and (whole is None or begun > whole):
            return f"the trainer has not finished writing the weights of step {begun} (no STABLE)"
        if self.holding is not None and (whole is None or whole < self.holding[1]):
            batch, version = self.holding
            return f"batch {batch} waits for the weights of step {version}{self._trainer_words()}"
        if self.broadcast is not None and (whole is None or whole < self.broadcast):
            return f"the orchestrator waits for the weights of step {self.broadcast}"
        if self.gated:
            return f"no rollout starts before there are new weights{self._trainer_words()}"
        if self.shipped > self.trained:
            return f"the trainer is still at step {self.trained + 1}"
        if self.evaluating:
            return f"the evaluation of {self.evaluating} isn't over ({self._batch_words()})"
        return f"the trainer waits for batch {self.shipped + 1} ({self._batch_words()})"

    def _starting(self) -> str:
        if not self.server_ready:
            return "the inference server loads its model"
        return (
            "the trainer loads its model"
            if not self.trainer_ready
            else "the parts connect to each other"
        )

    def _trainer_words(self) -> str:
        return f"; the trainer is at step {self.trained + 1}"

    def _batch_words(self) -> str:
        if self.batch is None:
            return "its rollouts are not logged yet"
        done, needed = self.batch
        buffered = f" and {self.buffered} of unfinished groups" if self.buffered else ""
        flying = "" if self.inflight is None else f", {self.inflight or 'none'} in flight"
        return f"{done} of {needed} rollouts{buffered}{flying}"


class Stall:
    """Decides when to warn that there is no progress. Times are in seconds since the epoch."""

    def __init__(self, stall_sec: float) -> None:
        """`stall_sec`: warn after so long, and after twice as long each further time."""
        self._stall_sec = stall_sec
        self._next = stall_sec
        self._moved_at: float | None = None
        """None while the past is being read."""

    def moved(self, now: float) -> None:
        """Note that there was progress."""
        if self._moved_at is not None:
            self._moved_at, self._next = now, self._stall_sec

    def past_is_read(self, moved_at: float) -> None:
        """Begin to count, now that the past is read: no progress since `moved_at`."""
        if self._moved_at is None:
            self._moved_at = moved_at

    def due(self, now: float) -> float | None:
        """Seconds without progress, if it is time to warn of that; else None."""
        if self._moved_at is None or now - self._moved_at < self._next:
            return None
        self._next = (now - self._moved_at) * 2
        return now - self._moved_at
