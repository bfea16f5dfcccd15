"""Follows a run's journal on a thread that nothing waits for, and hands its rows to one sink:
one row a step and one an evaluation, under the ecosystem's names."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tbtui.journal.events import Entry, EvalFinished, StepFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_POLL_SEC = 1.0
_PATIENCE_SEC = 30.0

log = logging.getLogger(__name__)

KINDS = ("step_finished", "eval_finished")
"""The kinds of events that rows are made of."""


@dataclass(frozen=True, slots=True)
class Row:
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

    def rows(self, entries: Iterable[Entry]) -> list[Row]:
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
                rows.append(Row(len(self._seen), event.step, entry.time, values))
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

    def log(self, rows: Sequence[Row]) -> None:
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
    ) -> None:
        """`open_sink` is called on the tracker's thread and may take its time."""
        self.name = name
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

    def _main(self) -> None:
        try:
            self._track()
        except Exception as error:
            log.exception("%s failed", self.name)
            self._on_failure(f"{self.name}: {_one_line(error)}; the run goes on without it")

    def _track(self) -> None:
        reader = JournalReader(self._directory)
        try:
            sink = self._open_sink()
            try:
                self._follow(reader, sink)
            finally:
                sink.close()
        finally:
            reader.close()

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
class Progress:
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
    def load(cls, directory: RunDirectory, name: str) -> Progress:
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


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
