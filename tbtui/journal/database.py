"""A journal's SQLite database, opened for reading and distrusted."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, writer
from tbtui.paths import require_plain

FORMAT = 2

_LAST_TIME = 2.5e11
_TABLES = ("events", "samples", "trained", "checkpoints")
_LONGEST_VALUE = 32 << 20
"""Bytes."""
_BETWEEN = 1_000_000
"""Steps of SQLite's machine between two looks whether a query takes too long."""
_STEPS_AT_LEAST, _STEPS_A_BYTE = 20_000_000, 50
"""Steps that a query may take: a few go through a row, and no row takes less than some bytes. More
of them means that a damaged file leads in circles."""

HAS_MODEL_LOGPROBS = (
    "SELECT count(*) FROM pragma_table_info('samples') WHERE name = 'model_logprobs'"
)


class JournalError(UserError):
    """The journal can't be written or read; the message is one line for a person."""


_OUTAGES_OF_FILES = frozenset({errno.ENOENT, errno.EIO, errno.ESTALE, errno.ENOTCONN})
_OUTAGES = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def may_pass(error: BaseException | None) -> bool:
    """Whether the error passes once the disk is repaired: it was full, read-only or out of reach.

    `error`: SQLite's or the system's, or the `JournalError` that came of it.
    """
    cause = error.__cause__ if isinstance(error, JournalError) else error
    if isinstance(cause, OSError):
        return cause.errno in _OUTAGES_OF_FILES
    # What Python's module raises by itself has none.
    code = getattr(cause, "sqlite_errorcode", None) if isinstance(cause, sqlite3.Error) else None
    # The low byte is the kind; what is above it says more.
    return code is not None and code & 0xFF in _OUTAGES


def is_time(value: object) -> TypeGuard[float]:
    """Whether a number is a time in seconds since the epoch that a calendar can show."""
    return isinstance(value, int | float) and 0 <= value < _LAST_TIME


def in_body(path: str, row: str = "") -> str:
    """SQL for what an event's body has there; NULL where the body is corrupt, and no error.

    `row`: the table's name in the query.
    """
    body = f"{row}.body" if row else "body"
    return f"iif(json_valid({body}), json_extract({body}, '{path}'), NULL)"


class Database:
    """A journal's database, which can only be read; of the thread that makes it.

    Everything raises `JournalError` when it can't be read, or is not one that this tbtui reads.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run, self._file = run, run.database
        self._left = self._most = 0
        try:
            for file in _files(run):
                require_plain(file)
            self._most = 1 + (_STEPS_AT_LEAST + _STEPS_A_BYTE * self._size()) // _BETWEEN
            self._db = sqlite3.connect(address(run), uri=True)
        except OSError as error:
            raise JournalError(f"{error.filename}: can't be read ({error.strerror})") from error
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        try:
            distrust(self._db)
            self._db.set_progress_handler(self._is_enough, _BETWEEN)
            (version,) = self.row("PRAGMA user_version")
            if version != FORMAT:
                raise JournalError(
                    f"{self._file}: journal format {version}, this tbtui reads {FORMAT}"
                )
        except JournalError:
            self.close()
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.close()
            raise self._unreadable(error) from error

    def rows(
        self, query: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a query's result."""
        return self._found(query, values, sqlite3.Cursor.fetchall)

    def row(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """First row of a query's result; None: it has none."""
        return self._found(query, values, sqlite3.Cursor.fetchone)

    def last_seq(self) -> int:
        """Number of the last event; 0: there is none."""
        (seq,) = self.row("SELECT coalesce(max(seq), 0) FROM events")
        # They are counted from 1, and each takes some bytes.
        if not isinstance(seq, int) or seq > self._size():
            raise JournalError(f"{self._file}: can't be read (its last row has the number {seq})")
        return seq

    def model_logprobs(self) -> str:
        """SQL for the column of that name in `samples`; NULL where the journal's version had
        none."""
        (found,) = self.row(HAS_MODEL_LOGPROBS)
        return "samples.model_logprobs" if found else "NULL"

    def timeless(self, after: int) -> int | None:
        """Number of the first event after `after` whose time is none; None: all have one."""
        row = self.row(
            "SELECT seq FROM events WHERE seq > ? AND NOT"
            " (typeof(time) IN ('real', 'integer') AND time >= 0 AND time < ?) LIMIT 1",
            (after, _LAST_TIME),
        )
        return None if row is None else int(row[0])

    def _size(self) -> int:
        return sum(file.stat().st_size for file in _files(self._run) if file.exists())

    def first_corrupt(self, kinds: Collection[str] = ()) -> JournalError | None:
        """The error of the first event, of some kinds or of all, whose body is no JSON."""
        marks = ", ".join("?" * len(kinds))
        where = f"kind IN ({marks}) AND " if kinds else ""
        row = self.row(
            f"SELECT seq, kind FROM events WHERE {where} NOT json_valid(body) ORDER BY seq LIMIT 1",
            tuple(kinds),
        )
        return None if row is None else self.corrupt(*row)

    def corrupt(self, seq: int, what: str) -> JournalError:
        """An error: the row of an event, or of a model call, is not what was written there."""
        return JournalError(
            f"{self._file}: row {seq} ({what}) is corrupt; put a sound copy of run.db in its place"
        )

    def close(self) -> None:
        self._db.close()

    def _found[T](
        self,
        query: str,
        values: Sequence[object] | Mapping[str, object],
        fetch: Callable[[sqlite3.Cursor], T],
    ) -> T:
        self._left = self._most
        try:
            try:
                return fetch(self._db.execute(query, values))
            except sqlite3.OperationalError as error:
                if not str(error).startswith("Could not decode"):
                    raise
                # One row's text is not UTF-8: its reader refuses it, and nobody else.
                self._db.text_factory = _as_far_as_it_goes
                return fetch(self._db.execute(query, values))
        except MemoryError as error:
            raise JournalError(f"{self._file}: can't be read (it takes too much memory)") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error

    def _is_enough(self) -> bool:
        """Called by SQLite as it works: True ends the query."""
        self._left -= 1
        return self._left < 0

    def _unreadable(self, error: sqlite3.Error | UnicodeDecodeError) -> JournalError:
        if isinstance(error, UnicodeDecodeError):  # SQLite's own message quotes what it can't read
            quoted = error.object.decode("utf-8", "backslashreplace")
            return JournalError(f"{self._file}: can't be read ({quoted})")
        if isinstance(error, sqlite3.OperationalError) and self._left < 0:
            return JournalError(f"{self._file}: can't be read (looking through it has no end)")
        if "malformed JSON" in str(error) and (found := self.first_corrupt()) is not None:
            return found
        return JournalError(f"{self._file}: can't be read ({error})")


def distrust(db: sqlite3.Connection) -> None:
    """Let nothing that is written in the database run: it may come from anybody. Views and triggers
    are refused, functions with effects can't be called by its schema, and no value is huge."""
    db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    db.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)
    db.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
    db.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for table in _TABLES:
        row = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if row is not None and not str(row[0]).upper().startswith(f"CREATE TABLE {table.upper()}"):
            raise sqlite3.DatabaseError(f"{table} is no table")


def _files(run: RunDirectory) -> list[Path]:
    """Files that SQLite opens."""
    name = run.database.name
    return [run.database.with_name(name + end) for end in ("", "-wal", "-shm", "-journal")]


def _as_far_as_it_goes(text: bytes) -> str:
    """Bytes that are no text become what no JSON may have."""
    return text.decode("utf-8", "surrogateescape")


def address(run: RunDirectory) -> str:
    """What SQLite opens to read the journal."""
    # Not the bare path: in an address `#`, `?` and `%` have a meaning.
    found = f"{run.database.absolute().as_uri()}?mode=ro"
    return f"{found}&immutable=1" if _at_rest(run) else found


def _at_rest(run: RunDirectory) -> bool:
    """In a directory that can't be written, SQLite opens only what nobody writes meanwhile."""
    if os.access(run.path, os.W_OK, effective_ids=True):
        return False
    try:
        return not run.database.with_name("run.db-wal").exists() and writer(run) is None
    except (OSError, RunDirectoryError):
        return False


def require_format(run: RunDirectory) -> None:
    """Raise `JournalError` when the directory's journal is not one that this tbtui reads."""
    Database(run).close()
