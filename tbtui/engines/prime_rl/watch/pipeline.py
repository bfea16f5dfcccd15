"""Where each part of Prime-RL stands and what it waits for, from what they log. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tbtui.engines.prime_rl.watch.logs import LogLine, Part
from tbtui.journal.events import RunPhase

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
    """What lies in the run directory."""

    broadcast_begun: int | None = None
    """The newest version of the weights that the trainer began to write."""
    broadcast_whole: int | None = None
    """The newest that it has written."""
    silent: tuple[Part, ...] = ()
    """Parts whose log isn't there."""


@dataclass(slots=True)
class Pipeline:
    """Folds log lines."""

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
        """Whether the line tells of progress."""
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
        """What the whole run is doing, and a word on it."""
        if not self.looping:
            return RunPhase.STARTING, self._starting()
        if self.shipped > self.trained:
            return RunPhase.TRAINING, f"step {self.trained + 1}"
        if self.evaluating:
            return RunPhase.EVALUATING, self.evaluating
        return RunPhase.SAMPLING, self._batch_words()

    def waiting_for(self, files: Files) -> str:
        """Why nothing moves, as far as anybody can tell."""
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
            "the trainer loads its model" if not self.trainer_ready else "the parts find together"
        )

    def _trainer_words(self) -> str:
        return f"; the trainer is at step {self.trained + 1}"

    def _batch_words(self) -> str:
        if self.batch is None:
            return "nothing told of its rollouts"
        done, needed = self.batch
        buffered = f" and {self.buffered} of unfinished groups" if self.buffered else ""
        flying = "" if self.inflight is None else f", {self.inflight or 'none'} in flight"
        return f"{done} of {needed} rollouts{buffered}{flying}"
