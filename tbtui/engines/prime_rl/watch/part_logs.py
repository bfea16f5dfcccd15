"""Where each part of Prime-RL stands, by the milestones in its log.

The lines are loguru's, as prime-rl 559b447 writes them, coloured or as JSON, behind torchrun's
prefix in the trainer's log. Why a part waits or died is not guessed from them: its log says it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from tbtui.journal.events import RunPhase

Part = Literal["orchestrator", "trainer"]
PARTS: tuple[Part, ...] = ("orchestrator", "trainer")

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\[\w+\]:\s?")
_LOGURU = re.compile(r"^\d\d:\d\d:\d\d\s+\w+\s+(.*)$")


class _JsonLine(msgspec.Struct):
    message: str = ""


def read_line(raw: bytes) -> str:
    """The text of a log's line, without colours, time and level."""
    text = _RANK.sub("", _COLOUR.sub("", raw.decode("utf-8", "replace")).rstrip())
    if text.startswith('{"timestamp"'):
        try:
            return msgspec.json.decode(text, type=_JsonLine).message
        except (msgspec.DecodeError, RecursionError):
            return text
    match = _LOGURU.match(text)
    return match[1].strip() if match else text


_STEP = re.compile(r"Step (\d+) \|")
_RESUMED = re.compile(r"Resuming orchestrator from checkpoint step (\d+)")
_EVALS = re.compile(r"Starting evals in (.+) \((\d+) total rollouts\)")


@dataclass(slots=True)
class Pipeline:
    """The state of the parts, folded from their log lines."""

    server_ready: bool = False
    looping: bool = False
    """The orchestrator hands out rollouts."""
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

    def add(self, part: Part, text: str) -> None:
        """Take in a line."""
        if part == "orchestrator":
            self._orchestrator(text)
        else:
            self._trainer(text)

    def _orchestrator(self, text: str) -> None:
        if match := _STEP.match(text):
            self.shipped = int(match[1])
        elif match := _RESUMED.match(text):
            self.resumed_from = int(match[1])
        elif match := _EVALS.match(text):
            self.evaluating, self.evaluation = match[1], int(match[2])
        elif text.startswith("Training from scratch"):
            self.resumed_from = 0
        elif text.startswith("Evaluated "):
            self.evaluating = ""
        elif text.startswith("Policy inference pool ready"):
            self.server_ready = True
        elif text.startswith("Starting orchestrator loop"):
            self.looping = True
        elif text.startswith("Orchestrator finished"):
            self.orchestrator_over = True

    def _trainer(self, text: str) -> None:
        if match := _STEP.match(text):
            self.trained = int(match[1])
        elif text.startswith("Starting training loop"):
            self.trainer_ready = True
        elif text.startswith("RL trainer finished"):
            self.trainer_over = True

    def phase(self) -> tuple[RunPhase, str]:
        """What the whole run is doing, and a detail."""
        if not self.looping:
            return RunPhase.STARTING, self._starting()
        if self.shipped > self.trained:
            return RunPhase.TRAINING, f"step {self.trained + 1}"
        if self.evaluating:
            return RunPhase.EVALUATING, self.evaluating
        return RunPhase.SAMPLING, ""

    def _starting(self) -> str:
        if not self.server_ready:
            return "the inference server loads its model"
        return (
            "the trainer loads its model"
            if not self.trainer_ready
            else "the parts connect to each other"
        )


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
