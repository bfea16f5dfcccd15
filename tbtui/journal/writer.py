"""The one hand that writes a run's journal."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pydantic_core import PydanticSerializationError

from tbtui.journal.database import FORMAT, JournalError, require_format
from tbtui.journal.events import AnyEvent, CheckpointSaved, TrialEvent
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, RunLock
from tbtui.journal.samples import SampleRecord, pack_floats, pack_ids, pack_texts, shared_prefix

if TYPE_CHECKING:
    # Readers on the start-up path do without it.
    import numpy as np
    import numpy.typing as npt

_SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    trial TEXT,
    body TEXT NOT NULL
);
CREATE INDEX events_by_trial ON events (trial, seq) WHERE trial IS NOT NULL;
CREATE INDEX events_by_kind ON events (kind, seq);
CREATE TABLE samples (
    id INTEGER PRIMARY KEY,
    trial TEXT NOT NULL,
    turn INTEGER NOT NULL,
    carried INTEGER NOT NULL,
    new_prompt_ids BLOB NOT NULL,
    completion_ids BLOB NOT NULL,
    logprobs BLOB NOT NULL,
    pieces BLOB NOT NULL,
    prompt_text BLOB NOT NULL,
    stop_reason TEXT NOT NULL,
    weights_version INTEGER NOT NULL,
    temperature REAL NOT NULL,
    seconds REAL NOT NULL,
    summary INTEGER NOT NULL
);
CREATE INDEX samples_by_trial ON samples (trial, id);
CREATE TABLE trained (
    trial TEXT NOT NULL,
    step INTEGER NOT NULL,
    logprobs BLOB NOT NULL,
    PRIMARY KEY (trial, step)
);
CREATE TABLE checkpoints (
    step INTEGER PRIMARY KEY,
    weights_version INTEGER NOT NULL,
    path TEXT NOT NULL,
    seq INTEGER NOT NULL
);
"""


def _create(database: Path) -> None:
    """Make an empty journal; it appears under its name complete, for readers that wait for it."""
    unfinished = database.with_suffix(".new")
    with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
        db.executescript(_SCHEMA)
    unfinished.rename(database)


def _body(event: AnyEvent) -> str:
    """As JSON. A lone surrogate, which no reader could show, becomes a question mark."""
    try:
        return event.model_dump_json(exclude={"kind"})
    except PydanticSerializationError:
        fields = event.model_dump(mode="json", exclude={"kind"})
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace").decode()


class JournalWriter:
    """Appends events and samples; every append is on its own durable against a killed process.

    SQLite in WAL mode, one transaction an append: readers never block it and it never waits for
    them. Used from one thread. Every method raises `JournalError` when the disk refuses.
    """

    def __init__(
        self,
        run: RunDirectory,
        clock: Callable[[], float] = time.time,
        *,
        continues: bool = False,
    ) -> None:
        """Start a journal, or with `continues` go on with the one that is there.

        Holds the run directory's lock until it is closed: a run has one writer at a time.
        """
        self._clock = clock
        self._where = run.database
        self._tails: dict[str, tuple[int, ...]] = {}
        """Of running trials: the tokens so far. A trial never goes on in another process."""
        with contextlib.ExitStack() as undo:
            try:
                self._lock = undo.enter_context(RunLock(run))
                if continues:
                    require_format(run)
                else:
                    _create(run.database)
                self._db = sqlite3.connect(run.database, isolation_level=None)
                undo.callback(self._db.close)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            except RunDirectoryError as error:
                raise JournalError(str(error)) from error
            except (OSError, sqlite3.Error) as error:
                raise JournalError(f"{run.database}: can't start the journal ({error})") from error
            undo.pop_all()

    @property
    def last_seq(self) -> int:
        """Sequence number of the last event; 0 where there is none."""
        try:
            (seq,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        except sqlite3.Error as error:
            raise JournalError(f"{self._where}: can't read the journal ({error})") from error
        return int(seq)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All that is written within is there for readers at once, or not at all."""
        try:
            self._db.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise JournalError(f"{self._where}: can't write the journal ({error})") from error

    def append(self, event: AnyEvent) -> int:
        """Write one event; returns its sequence number."""
        trial = event.trial if isinstance(event, TrialEvent) else None
        try:
            seq = self._db.execute(
                "INSERT INTO events (time, kind, trial, body) VALUES (?, ?, ?, ?)",
                (self._clock(), event.kind, trial, _body(event)),
            ).lastrowid
            assert seq is not None
            if isinstance(event, CheckpointSaved):
                self._db.execute(
                    "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
                    (event.step, event.weights_version, event.path, seq),
                )
        except sqlite3.Error as error:
            raise JournalError(f"{self._where}: can't write the journal ({error})") from error
        return seq

    def add_sample(self, sample: SampleRecord) -> int:
        """Write one model call; returns its id."""
        carried = shared_prefix(self._tails.get(sample.trial, ()), sample.prompt_ids)
        self._tails[sample.trial] = sample.prompt_ids + sample.completion_ids
        try:
            row = self._db.execute(
                "INSERT INTO samples (trial, turn, carried, new_prompt_ids, completion_ids,"
                " logprobs, pieces, prompt_text, stop_reason, weights_version, temperature,"
                " seconds, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    sample.trial,
                    sample.turn,
                    carried,
                    pack_ids(sample.prompt_ids[carried:]),
                    pack_ids(sample.completion_ids),
                    pack_floats(sample.logprobs),
                    pack_texts(sample.pieces),
                    pack_texts([sample.prompt_text]),
                    sample.stop_reason,
                    sample.weights_version,
                    sample.temperature,
                    sample.seconds,
                    sample.summary,
                ),
            ).lastrowid
        except sqlite3.Error as error:
            raise JournalError(f"{self._where}: can't write the journal ({error})") from error
        assert row is not None
        return row

    def add_trained(self, trial: str, step: int, logprobs: npt.NDArray[np.float32]) -> None:
        """Write the trainer's log-probabilities (nats) of a trial's trained tokens.

        In the order of its calls, under the weights at which the step took their gradient.
        """
        try:
            self._db.execute(
                "INSERT OR REPLACE INTO trained VALUES (?, ?, ?)",
                (trial, step, pack_floats(logprobs)),
            )
        except sqlite3.Error as error:
            raise JournalError(f"{self._where}: can't write the journal ({error})") from error

    def forget(self, trial: str) -> None:
        """The trial is over: no further sample of it will come."""
        self._tails.pop(trial, None)

    def close(self) -> None:
        self._db.close()
        self._lock.release()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
