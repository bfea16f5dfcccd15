"""Trackio, in a process of its own: it prints to the terminal and hooks into its interpreter."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tbtui.engines.trackers.base import Progress
from tbtui.engines.trackers.rows import Row
from tbtui.journal.rundir import RunDirectory

PACKAGE = "trackio"
_MODULE = "tbtui.engines.trackers.trackio_process"


class TrackioError(Exception):
    """Trackio's process gave up; its last words."""


class TrackioSink:
    """One Trackio run for one run of ours, resumed with it under the same name."""

    def __init__(
        self, project: str, name: str, config: dict[str, Any], directory: RunDirectory
    ) -> None:
        self._progress = Progress.load(directory, "trackio")
        logs = directory.path / "logs"
        logs.mkdir(exist_ok=True)
        self._log = logs / "trackio.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # ctrl-c is for the run: the last rows come after it
            )
        self._send({"project": project, "name": name, "config": config})
        self._progress.id = name

    def log(self, rows: Sequence[Row]) -> None:
        new = [row for row in rows if row.index >= self._progress.rows]
        for row in new:
            finite = {name: value for name, value in row.values.items() if math.isfinite(value)}
            self._send({"step": row.index, "metrics": {**finite, "step": row.step}})
        if new:
            self._progress.rows = new[-1].index + 1
            self._progress.save()
        if self._process.poll() is not None:
            raise TrackioError(self._last_words())

    def close(self) -> None:
        """Raises `TrackioError` when its process fails over the last rows."""
        already_gone = self._process.poll() is not None
        self._process.communicate()
        if self._process.returncode and not already_gone:
            raise TrackioError(self._last_words())

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            self._process.wait()
            raise TrackioError(self._last_words()) from error

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with status {self._process.returncode}"
