"""Logs what happens in each trial of an environment server, for watchers: a file of JSON lines.

`events/TRIAL.jsonl` has one line an event, `{"time": SECONDS, "event": {...}}`, where `event` is
one of the journal's (`tbtui.journal.events`) with its `kind`, from `trial_queued` to
`trial_finished`, which is always the last. Commands on the trial and what came of them are there
too (`command_issued`, `command_done`). The terminal is beside it, in
`trials/TRIAL/recording.cast`.

The token ids and log-probabilities of a completion stay in verifiers: in `turn_sampled` the fields
`sample`, `mean_logprob`, `min_logprob` and `weights_version` are null. Prime-RL's traces have
them, under the id in `TRIAL__ID`.

The first line has a third field, `"server": {...}`: which environment server writes the file, so
that a reader on the same machine knows when nothing more will come.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    TrialEvent,
    TurnSampled,
    fields_of,
)
from tbtui.rollout.messages import Completion, SampleWanted

FOLDER = "events"
_SAME_START_SEC = 1.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The process of an environment server."""

    host: str
    pid: int
    started: float
    """Seconds since the epoch; a later process with the same number started later."""

    @classmethod
    def this(cls) -> ServerProcess:
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    def ended(self) -> bool:
        """Whether it is known to be over; False for a process of another machine."""
        if self.host != socket.gethostname():
            return False
        try:
            started = psutil.Process(self.pid).create_time()
        except psutil.NoSuchProcess:
            return True
        return abs(started - self.started) > _SAME_START_SEC


def trial_name(task: str, trace: str) -> str:
    """The name of the rollout whose trace has this id: unique, and fit for file names."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in task)
    return f"{plain}__{trace[:12]}"


class TrialLog:
    """Appends one trial's events. Every line is with the system when `append` returns.

    Every method raises `OSError` when the disk refuses.
    """

    def __init__(self, directory: Path, trial: str, clock: Callable[[], float] = time.time) -> None:
        folder = directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._file = (folder / f"{trial}.jsonl").open("ab", buffering=0)
        self._server: ServerProcess | None = ServerProcess.this()
        """Until it is written."""

    def append(self, event: AnyEvent) -> None:
        # In ASCII: no reader can take a character of the text for the end of the line.
        line = {"time": self._clock(), "event": fields_of(event)}
        if self._server is not None:
            line["server"], self._server = asdict(self._server), None
        self._file.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


class TrialLogs:
    """Takes the events of all trials of a server, each into the log of its trial.

    Events of no trial, or of one whose log is not open, are dropped. Every method raises `OSError`
    when the disk refuses.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, TrialLog] = {}
        self._targets: dict[str, str] = {}
        """Command that is not answered yet -> its trial."""

    def open(self, trial: str) -> None:
        self._logs[trial] = TrialLog(self._directory, trial)

    def append(self, event: AnyEvent) -> None:
        match event:
            case TrialEvent():
                trial = event.trial
            case CommandIssued():
                trial = self._targets[event.command] = event.target
            case CommandDone():
                trial = self._targets.pop(event.command, "")
            case _:
                return
        if (log := self._logs.get(trial)) is not None:
            log.append(event)

    def close(self, trial: str) -> None:
        self._logs.pop(trial).close()


def turn_sampled(wanted: SampleWanted, completion: Completion, seconds: float) -> TurnSampled:
    """A model call, without what only the trainer knows."""
    return TurnSampled(
        trial=wanted.trial,
        turn=wanted.turn,
        purpose=wanted.purpose,
        sample=None,
        text=completion.text,
        thinking=completion.thinking,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        mean_logprob=None,
        min_logprob=None,
        stop_reason="length" if completion.truncated else "stop",
        weights_version=None,
        seconds=seconds,
    )
