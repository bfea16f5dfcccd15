"""What the environment servers of a run and its watchers share on disk: commands and events.

`control.jsonl` in the servers' common directory has commands for trials and the run, one JSON
object a line, a `tbtui.journal.commands.Command`:

    {"verb": "pause", "target": "copy-01__3f2a9c10", "actor": "ada", "reason": "", "id": "..."}
    {"verb": "pause", "target": "run", "actor": "ada", "reason": "", "id": "..."}

`verb` is pause, freeze, resume, stop, cancel or retry for a trial; pause, freeze or resume for
`run`, which closes and opens the gate that new trials go through, and holds or releases those
that run. A line without an `id` is identified by its place in the file. A writer appends a whole
line with one write (`append_command`). Every server reads the file from its beginning, so that one
that starts later finds the gate as it was left, and obeys what concerns its own trials.

`events/TRIAL.jsonl` has what happens in a trial, one line an event,
`{"time": SECONDS, "event": {...}}`, where `event` is one of the journal's (`tbtui.journal.events`)
with its `kind`, from `trial_queued` to `trial_finished`, which is always the last. Commands on the
trial and what came of them are there too (`command_issued`, `command_done`). The terminal is beside
it, in `trials/TRIAL/recording.cast`.

The token ids and log-probabilities of a completion stay in verifiers: in `turn_sampled` the fields
`sample`, `mean_logprob`, `min_logprob` and `weights_version` are null. Prime-RL's traces have
them, under the id in `TRIAL__ID`.

The first line has a third field, `"server": {...}`: which environment server writes the file, so
that a reader on the same machine knows when nothing more will come.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError

from tbtui.journal.commands import Command
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    ToolUse,
    TrialEvent,
    TurnSampled,
    fields_of,
)
from tbtui.rollout.messages import Completion, SampleWanted

FILE_NAME = "control.jsonl"
_FIELDS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_COMMAND: TypeAdapter[Command] = TypeAdapter(Command)
_log = logging.getLogger(__name__)


def append_command(directory: Path, command: Command) -> None:
    """Send a command to all environment servers that use `directory`.

    Raises:
        OSError: it can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    line = json.dumps(dataclasses.asdict(command)).encode() + b"\n"
    descriptor = os.open(
        directory / FILE_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
    )
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


class ControlFile:
    """One reader of a directory's control file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._read = 0
        """Bytes of whole lines that have been read."""

    def poll(self) -> list[Command]:
        """The commands that were added since the last call. A broken line is logged and left out.

        Raises:
            OSError: the file is there and can't be read.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return []
        commands = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            if (command := self._parse(line)) is not None:
                commands.append(command)
            self._read += len(line)
        return commands

    def _parse(self, line: bytes) -> Command | None:
        try:
            # All readers must know a command by the same id.
            fields = _FIELDS.validate_json(line)
            return _COMMAND.validate_python({"id": f"at-{self._read}", **fields})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            _log.warning("%s: not a command: %r: %s", self._path, line[:200], problem)
            return None


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


def hosted_name(task: str, trace: str) -> str:
    """The name of the trial that a rollout with this trace runs: unique, and fit for file names."""
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
        tool_calls=tuple(
            ToolUse(id=call.id, name=call.name, arguments=call.arguments)
            for call in completion.tool_calls
        ),
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        mean_logprob=None,
        min_logprob=None,
        stop_reason="length" if completion.truncated else "stop",
        weights_version=None,
        seconds=seconds,
    )
