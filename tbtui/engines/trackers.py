"""Copies a run's metrics from its journal to files and services. None can stop the training.

A `Tracker` follows the journal on a thread that nothing waits for, and hands rows to one sink: one
row a step and one an evaluation, under the ecosystem's names.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from tbtui.config import ConfigError, RunConfig, to_json
from tbtui.journal.events import Entry, EvalFinished, StepFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_POLL_SEC = 1.0
_PATIENCE_SEC = 30.0
_KILLED_SEC = 3.0
"""For what is left to do once the process that was waited for has been killed."""

log = logging.getLogger(__name__)

KINDS = ("step_finished", "eval_finished")
"""The kinds of events that rows are made of."""


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """The numbers of one step, or of one evaluation."""

    index: int
    """Place among the run's rows, from 0: the same at every reading of the journal."""
    step: int
    """Optimiser steps done, which is what charts have as their x axis."""
    time: float
    """Seconds since the epoch."""
    values: dict[str, float]


class RowCounter:
    """Makes rows of a journal's entries, read from the start and in order."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int, float]] = set()

    def rows(self, entries: Iterable[Entry]) -> list[MetricsRow]:
        """The rows that these entries add; a step or an evaluation journalled twice is one row."""
        rows = []
        for entry in entries:
            match entry.event:
                case StepFinished() as event:
                    key, values = ("step", event.step, 0.0), dict(event.metrics)
                case EvalFinished() as event:
                    key, values = ("eval", event.step, event.temperature), _evaluation(event)
                case _:
                    continue
            if key not in self._seen:
                rows.append(MetricsRow(len(self._seen), event.step, entry.time, values))
                self._seen.add(key)
        return rows


def _evaluation(event: EvalFinished) -> dict[str, float]:
    """`test/*`, without a scored trial only how many there were; and what it cost."""
    values = {
        "test/scored_episodes": float(event.scored),
        "test/unscored_episodes": float(event.unscored),
    }
    if event.pass_rate is not None:
        values["test/pass_rate"] = event.pass_rate
    if event.harbor_pass_rate is not None:
        values["test/harbor_pass_rate"] = event.harbor_pass_rate
    for kind, rate in event.by_kind.items():
        values[f"test/{kind}/pass_rate"] = rate
    for dataset, rate in event.by_dataset.items():
        values[f"test/dataset/{dataset}/pass_rate"] = rate
    for k, estimate in event.pass_at.items():
        values[f"test/pass_at_{k}"] = estimate.value
        values[f"test/pass_at_{k}/low"] = estimate.low
        values[f"test/pass_at_{k}/high"] = estimate.high
    return values | event.metrics


class Sink(Protocol):
    """Takes rows. All calls come on the tracker's thread; any error ends the tracking."""

    def log(self, rows: Sequence[MetricsRow]) -> None:
        """Take rows in. The first call has all that the journal held so far, maybe none."""

    def close(self) -> None:
        """End: no more rows come. Called after an error too."""


class Tracker:
    """Logs each step's and each evaluation's metrics.

    It can never stop or slow the training: whatever goes wrong is reported once, through
    `on_failure` (called on the tracker's thread with one line), and ends this tracking alone.
    """

    def __init__(
        self,
        name: str,
        open_sink: Callable[[], Sink],
        directory: RunDirectory,
        on_failure: Callable[[str], None],
        program: str = "",
    ) -> None:
        """
        Args:
            open_sink: called on the tracker's thread; may take its time.
            program: a word in the command line of the process that the sink starts, if it does.
        """
        self.name = name
        self._program = program
        self._open_sink = open_sink
        self._directory = directory
        self._on_failure = on_failure
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Log what is left of the complete journal, and end. Does not wait."""
        self._complete.set()

    def close(self, patience: float = _PATIENCE_SEC) -> None:
        """`finish`, and wait for the end, at most `patience` seconds."""
        self.finish()
        self._thread.join(patience)
        if self._thread.is_alive():
            log.error("%s did not finish within %.0f s and is left behind", self.name, patience)
            if self._program:
                self._end_program()
                self._thread.join(_KILLED_SEC)

    def _end_program(self) -> None:
        """Kill the sink's process with those that it has started: wandb's library would wait for it
        when ours wants to end, and stuck ones would outlive ours."""
        doomed: list[psutil.Process] = []
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if any(self._program in word for word in child.cmdline()):
                    doomed += (child, *child.children(recursive=True))
        for process in doomed:
            with suppress(psutil.Error):
                process.kill()

    def _main(self) -> None:
        try:
            self._track()
        except (Exception, SystemExit) as error:  # wandb's library ends what it takes for a script
            log.exception("%s failed", self.name)
            self._on_failure(f"{self.name}: {_one_line(error)}; the run goes on without it")

    def _track(self) -> None:
        with (
            closing(JournalReader(self._directory)) as reader,
            closing(self._open_sink()) as sink,
        ):
            self._follow(reader, sink)

    def _follow(self, reader: JournalReader, sink: Sink) -> None:
        counter, after, ending = RowCounter(), 0, False
        while True:
            entries = list(reader.each(KINDS, after))
            after = entries[-1].seq if entries else after
            sink.log(counter.rows(entries))
            if ending:
                return
            ending = self._complete.wait(_POLL_SEC)


def close_all(trackers: Sequence[Tracker], patience: float = _PATIENCE_SEC) -> None:
    """End all trackers, in `patience` seconds together: the journal is complete."""
    for tracker in trackers:
        tracker.finish()
    deadline = time.monotonic() + patience
    for tracker in trackers:
        tracker.close(max(0.0, deadline - time.monotonic()))


@dataclass(slots=True)
class TrackerProgress:
    """How far a run has been handed to a service that can't be asked; in the run directory.

    A resumed run goes on from here. A process killed between a row and this note hands that row
    over again, under the same index.
    """

    path: Path
    id: str = ""
    """The service's name for the run; empty: the service has not seen it."""
    rows: int = 0
    """How many rows it was given."""

    @classmethod
    def load(cls, directory: RunDirectory, name: str) -> TrackerProgress:
        """Read the note. Raises `OSError` or `ValueError` when it can't be read."""
        path = directory.path / "trackers" / f"{name}.json"
        if not path.exists():
            return cls(path)
        kept = json.loads(path.read_text())
        return cls(path, kept["id"], kept["rows"])

    def save(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text(json.dumps({"id": self.id, "rows": self.rows}))
        unfinished.replace(self.path)


def _one_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


# Sinks


TENSORBOARD = "tensorboardX"
"""Writes TensorBoard's format with numpy and protobuf alone."""

TRACKIO = "trackio"
_MODULE = "tbtui.engines.trackio_process"
_WANDB = "wandb-core"


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

    def log(self, rows: Sequence[MetricsRow]) -> None:
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

    def log(self, rows: Sequence[MetricsRow]) -> None:
        self._file.writelines(line(row) for row in rows)
        self._file.flush()
        if self._unfinished is not None:
            self._unfinished.replace(self._path)
            self._unfinished = None

    def close(self) -> None:
        self._file.close()


def line(row: MetricsRow) -> str:
    """A row as one line of JSON, its end included."""
    values = {name: v if math.isfinite(v) else None for name, v in row.values.items()}
    place = {"step": row.step, "time": round(row.time, 3)}
    # A metric may have such a name, too: another trainer's.
    return json.dumps(place | values | place) + "\n"


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
        self._progress = TrackerProgress.load(directory, "wandb")
        again = bool(self._progress.id)
        quiet = wandb.Settings(console="off", silent=True)
        # Before anything else: it would ask for a key on the terminal, and read what is typed.
        wandb.setup(settings=quiet)
        with ExitStack() as failing:
            # Else its library would wait for a server that doesn't answer when our process ends.
            failing.callback(wandb.teardown)
            self._run = wandb.init(
                project=project,
                name=name,
                id=self._progress.id or None,
                resume="allow" if again else None,
                dir=str(directory.path),
                config=config,
                settings=quiet,
            )
            failing.pop_all()
        if again and not self._run.offline:
            self._progress.rows = self._run.starting_step
        self._progress.id = self._run.id
        self._progress.save()
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def log(self, rows: Sequence[MetricsRow]) -> None:
        new = [row for row in rows if row.index >= self._progress.rows]
        for row in new:
            self._run.log({**row.values, "step": row.step}, step=row.index)
        if new:
            self._progress.rows = new[-1].index + 1
            self._progress.save()

    def close(self) -> None:
        try:
            self._run.finish()
        finally:
            self._wandb.teardown()  # its service process would stay as long as ours


class TrackioError(Exception):
    """Trackio's process failed; the last line that it printed."""


class TrackioSink:
    """One Trackio run for one run of ours, resumed with it under the same name."""

    def __init__(
        self, project: str, name: str, config: dict[str, Any], directory: RunDirectory
    ) -> None:
        self._progress = TrackerProgress.load(directory, "trackio")
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

    def log(self, rows: Sequence[MetricsRow]) -> None:
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


# What a config asks for


def check_trackers(config: RunConfig) -> None:
    """Refuse a tracker whose package is not installed. Imports nothing.

    Raises:
        ConfigError: a tracker is asked for whose package is not installed.
    """
    for asked, package, setting, extra in (
        (config.tensorboard, TENSORBOARD, "tensorboard=true", "tensorboard"),
        (config.trackio_project, TRACKIO, f"trackio_project={config.trackio_project}", "trackio"),
    ):
        if asked and importlib.util.find_spec(package) is None:
            raise ConfigError(f"{setting}: {package} is not installed; install tbtui[{extra}]")


def trackers_for(
    config: RunConfig, directory: RunDirectory, on_failure: Callable[[str], None]
) -> list[Tracker]:
    """Everything that the config asks for, not started yet; `metrics.jsonl` always.

    The journal must exist when they are started, and each is closed (`close_all`) when it is
    complete. `on_failure` is called with one line, on a tracker's thread.
    """
    path, settings = directory.path, to_json(config)

    def tracker(name: str, open_sink: Callable[[], Sink], program: str = "") -> Tracker:
        return Tracker(name, open_sink, directory, on_failure, program)

    trackers = [tracker("metrics.jsonl", lambda: JsonLinesSink(path / "metrics.jsonl"))]
    if config.tensorboard:
        trackers.append(tracker("tensorboard", lambda: TensorBoardSink(path / "tensorboard")))
    if wandb_project := config.wandb_project:
        name = config.wandb_name or directory.name
        trackers.append(
            tracker("wandb", lambda: WandbSink(wandb_project, name, settings, directory), _WANDB)
        )
    if trackio_project := config.trackio_project:
        trackers.append(
            tracker(
                "trackio",
                lambda: TrackioSink(trackio_project, directory.name, settings, directory),
                _MODULE,
            )
        )
    return trackers
