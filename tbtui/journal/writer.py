"""Writes a run's journal, as the only one that does."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tbtui.journal.database import (
    FORMAT,
    HAS_MODEL_LOGPROBS,
    JournalError,
    distrust,
    may_pass,
    require_format,
)
from tbtui.journal.events import (
    AnyEvent,
    GpusMeasured,
    PolicyMeasured,
    ResourcesMeasured,
    TrialEvent,
    encode,
)
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
    summary INTEGER NOT NULL,
    model_logprobs BLOB
);
CREATE INDEX samples_by_trial ON samples (trial, id);
CREATE TABLE trained (
    trial TEXT NOT NULL,
    step INTEGER NOT NULL,
    logprobs BLOB NOT NULL,
    PRIMARY KEY (trial, step)
);
"""


_LAST_EVENT = "SELECT coalesce(max(seq), 0) FROM events"
_LAST_SAMPLE = "SELECT coalesce(max(id), 0) FROM samples"
# A write whose outcome an outage has left in doubt is repeated.
_INSERT_EVENT = (
    "INSERT OR REPLACE INTO events (seq, time, kind, trial, body) VALUES (?, ?, ?, ?, ?)"
)
_INSERT_SAMPLE = (
    "INSERT OR REPLACE INTO samples (id, trial, turn, carried, new_prompt_ids, completion_ids,"
    " logprobs, pieces, prompt_text, stop_reason, weights_version, temperature,"
    " seconds, summary, model_logprobs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# A journal of an earlier version has none.
_ADD_MODEL_LOGPROBS = "ALTER TABLE samples ADD COLUMN model_logprobs BLOB"
_MEASUREMENTS = (PolicyMeasured, ResourcesMeasured, GpusMeasured)


def _create(database: Path) -> None:
    """Make an empty journal; it appears under its name complete, for readers that wait for it."""
    unfinished = database.with_suffix(".new")
    with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
        db.executescript(_SCHEMA)
    unfinished.rename(database)


_Statement = tuple[str, tuple[object, ...]]


class JournalWriter(contextlib.AbstractContextManager["JournalWriter"]):
    """Appends events and samples; every append is on its own durable against a killed process.

    SQLite in WAL mode, one transaction an append: readers never block it and it never waits for
    them. Used from one thread.

    Where `on_blocked` is set, a disk that refuses (full, read-only, out of reach) loses nothing:
    what is to be written is kept in memory, in order, until `flush` gets it written; `blocked` says
    why, and `on_blocked` is called. Measurements that nobody can look up then are left out.
    Whatever else SQLite refuses, and everything otherwise, raises `JournalError`.
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

        Raises:
            RunDirectoryError: another process has the lock.
            JournalError: the journal can't be made, or gone on with.
        """
        self._clock = clock
        self.run = run
        """Whose journal it is."""
        self._where = run.database
        self._collected: list[_Statement] | None = None
        """What is written together so far."""
        self.blocked = ""
        """Why nothing can be written for now; empty while all is well."""
        self.on_blocked: Callable[[], None] | None = None
        """Sees to it that `flush` is called; without it an outage raises `JournalError` too."""
        self._backlog: list[_Statement] = []
        self._tails: dict[str, tuple[int, ...]] = {}
        """Running trial -> its tokens so far. A trial never goes on in another process."""
        with contextlib.ExitStack() as undo:
            self._lock = undo.enter_context(RunLock(run))
            try:
                if continues:
                    require_format(run)
                else:
                    _create(run.database)
                self._db = self._connected()
                undo.callback(self._db.close)
                if not self._db.execute(HAS_MODEL_LOGPROBS).fetchone()[0]:
                    self._db.execute(_ADD_MODEL_LOGPROBS)
                self._seq = int(self._db.execute(_LAST_EVENT).fetchone()[0])
                self._sample = int(self._db.execute(_LAST_SAMPLE).fetchone()[0])
            except RunDirectoryError as error:
                raise JournalError(str(error)) from error
            except (OSError, sqlite3.Error) as error:
                raise JournalError(f"{run.database}: can't start the journal ({error})") from error
            undo.pop_all()

    @property
    def last_seq(self) -> int:
        """Sequence number of the last event; 0 where there is none."""
        return self._seq

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write all that is appended within as one transaction."""
        before = self._seq, self._sample
        collected, self._collected = self._collected, []
        try:
            yield
            statements = self._collected
        except BaseException:
            self._seq, self._sample = before
            raise
        finally:
            self._collected = collected
        self._write(*statements)

    def append(self, event: AnyEvent) -> int:
        """Write one event; returns its sequence number."""
        trial = event.trial if isinstance(event, TrialEvent) else None
        if self.blocked and isinstance(event, _MEASUREMENTS):
            return self._seq
        body = encode(event)
        self._seq += 1
        self._write((_INSERT_EVENT, (self._seq, self._clock(), event.kind, trial, body)))
        return self._seq

    def add_sample(self, sample: SampleRecord) -> int:
        """Write one model call; returns its id."""
        carried = shared_prefix(self._tails.get(sample.trial, ()), sample.prompt_ids)
        self._tails[sample.trial] = sample.prompt_ids + sample.completion_ids
        self._sample += 1
        row = (
            self._sample,
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
            None if sample.model_logprobs is None else pack_floats(sample.model_logprobs),
        )
        self._write((_INSERT_SAMPLE, row))
        return self._sample

    def add_trained(self, trial: str, step: int, logprobs: npt.NDArray[np.float32]) -> None:
        """Write the trainer's log-probabilities (nats) of a trial's trained tokens.

        In the order of its calls, under the weights at which the step took their gradient.
        """
        row = (trial, step, pack_floats(logprobs))
        self._write(("INSERT OR REPLACE INTO trained VALUES (?, ?, ?)", row))

    def flush(self) -> bool:
        """Try to write what has been kept back; whether nothing is kept back any more."""
        if not self.blocked:
            return True
        try:
            # What a connection knows of a file system may not outlive its outage.
            self._db.close()
            self._db = self._connected()
            self._execute(self._backlog)
        except sqlite3.Error as error:
            self._refused(error)
            return False
        self._backlog.clear()
        self.blocked = ""
        return True

    def _connected(self) -> sqlite3.Connection:
        # Not the bare path, which would make a new journal where the directory is gone.
        address = f"{self._where.absolute().as_uri()}?mode=rw"
        db = sqlite3.connect(address, uri=True, isolation_level=None)
        try:
            distrust(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _write(self, *statements: _Statement) -> None:
        """Execute the statements in one transaction; keep them while the disk refuses."""
        if self._collected is not None:
            self._collected.extend(statements)
        elif self.blocked:
            self._backlog.extend(statements)
        else:
            try:
                self._execute(statements)
            except sqlite3.Error as error:
                self._refused(error)
                self._backlog.extend(statements)
                if self.on_blocked is not None:
                    self.on_blocked()

    def _execute(self, statements: Sequence[_Statement]) -> None:
        if len(statements) == 1:
            self._db.execute(*statements[0])
            return
        self._db.execute("BEGIN")
        try:
            for statement in statements:
                self._db.execute(*statement)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _refused(self, error: sqlite3.Error) -> None:
        """Remember why nothing can be written for now.

        Raises:
            JournalError: it is nothing that passes.
        """
        if self.on_blocked is None or not may_pass(error):
            raise JournalError(f"{self._where}: can't write the journal ({error})") from error
        self.blocked = str(error)

    def forget(self, trial: str) -> None:
        """Drop the tokens of a trial that is over: no further sample of it will come."""
        self._tails.pop(trial, None)

    def close(self) -> None:
        """Write what has been kept back, if that can be; what can't is lost with the process."""
        self.flush()
        self._db.close()
        self._lock.release()

    def __exit__(self, *error: object) -> None:
        self.close()
