"""Commands for the trials of environment servers, in a file that only grows.

`control.jsonl` in the servers' common directory holds one JSON object a line, a
`tbtui.journal.commands.Command`:

    {"verb": "pause", "target": "copy-01__3f2a9c10", "actor": "ada", "reason": "", "id": "..."}
    {"verb": "pause", "target": "run", "actor": "ada", "reason": "", "id": "..."}

`verb` is pause, freeze, resume, stop, cancel or retry for a trial; pause, freeze or resume for
`run`, which closes and opens the gate that new trials go through, and holds or releases those
that run. A line without an `id` is identified by its place in the file. A writer appends a whole
line with one write (`append_command`). Every server reads the file from its beginning, so that one
that starts later finds the gate as it was left, and obeys what concerns its own trials.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tbtui.journal.commands import Command

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
