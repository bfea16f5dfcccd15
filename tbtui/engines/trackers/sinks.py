"""Where metrics go: `metrics.jsonl` and TensorBoard files in the run directory, wandb, Trackio."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tbtui.engines.trackers.base import Progress, Row
from tbtui.journal.rundir import RunDirectory

TENSORBOARD = "tensorboardX"
"""Writes TensorBoard's format with numpy and protobuf alone."""

TRACKIO = "trackio"
_MODULE = "tbtui.engines.trackers.trackio_process"


class TensorBoardSink:
    """Scalars by step, written anew from the journal at every start.

    Files of before are removed, and the new one begins by telling a TensorBoard that has them
    open to forget what they said.
    """

    def __init__(self, path: Path) -> None:
        # Here, because the extra may not be installed.
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found,unused-ignore]

        path.mkdir(exist_ok=True)
        for before in path.glob("events.out.tfevents.*"):
            before.unlink()
        self._writer = SummaryWriter(str(path), purge_step=0)

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in row.values.items():
                self._writer.add_scalar(name, value, row.step, walltime=row.time)
        if rows:
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class JsonLinesSink:
    """`metrics.jsonl`, written anew from the journal at every start: complete, and nothing twice.

    Each line has `step`, `time` (seconds since the epoch) and the metrics; what is not a finite
    number is null. The file of before stays in place until the new one has caught up with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished: Path | None = path.with_suffix(".new")
        self._file = self._unfinished.open("w", encoding="utf-8")

    def log(self, rows: Sequence[Row]) -> None:
        self._file.writelines(line(row) for row in rows)
        self._file.flush()
        if self._unfinished is not None:
            self._unfinished.replace(self._path)
            self._unfinished = None

    def close(self) -> None:
        self._file.close()


def line(row: Row) -> str:
    """A row as one line of JSON, its end included."""
    values = {name: v if math.isfinite(v) else None for name, v in row.values.items()}
    return json.dumps({"step": row.step, "time": round(row.time, 3), **values}) + "\n"


class WandbSink:
    """One wandb run for one run of ours, resumed with it under the same id.

    A row's index is wandb's own step, so that a row can't be there twice. Online the server says
    how far it has got, offline our note in the run directory does.
    """

    def __init__(
        self, project: str, name: str, config: dict[str, Any], directory: RunDirectory
    ) -> None:
        # Here, because importing wandb takes a second or two.
        import wandb

        self._wandb = wandb
        self._progress = Progress.load(directory, "wandb")
        again = bool(self._progress.id)
        self._run = wandb.init(
            project=project,
            name=name,
            id=self._progress.id or None,
            resume="allow" if again else None,
            dir=str(directory.path),
            config=config,
            settings=wandb.Settings(console="off", silent=True),
        )
        if again and not self._run.offline:
            self._progress.rows = self._run.starting_step
        self._progress.id = self._run.id
        self._progress.save()
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def log(self, rows: Sequence[Row]) -> None:
        new = [row for row in rows if row.index >= self._progress.rows]
        for row in new:
            self._run.log({**row.values, "step": row.step}, step=row.index)
        if new:
            self._progress.rows = new[-1].index + 1
            self._progress.save()

    def close(self) -> None:
        self._run.finish()
        self._wandb.teardown()  # its service process would stay as long as ours


class TrackioError(Exception):
    """Trackio's process failed; the last line that it printed."""


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
