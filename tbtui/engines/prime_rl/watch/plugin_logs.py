"""What our plugin's environment servers write of their trials: `events/TRIAL.jsonl`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tbtui.engines.prime_rl.plugin.trial_log import FOLDER, ServerProcess
from tbtui.engines.prime_rl.watch.tails import Tails
from tbtui.journal.events import AnyEvent, EventError, decode_any

_LOOKS_AFTER_CHANGE = 8
"""A file system may tell of a change with a clock too coarse for the next one."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One line."""

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
        """What is new in a trial's log. A line that is none of ours is counted and left out."""
        path, more = self._path(trial), True
        while more:
            # A watcher that starts again counts its lines anew.
            lines, more = self._tails.read(path, remember=False)
            for line in lines:
                if (logged := self._parse(line)) is not None:
                    yield logged

    def close(self, trial: str) -> None:
        """Nothing more is expected."""
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
