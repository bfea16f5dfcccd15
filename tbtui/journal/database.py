"""The database that a journal is, for all who read it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tbtui.journal.rundir import RunDirectory, RunDirectoryError, writer

FORMAT = 2


class JournalError(Exception):
    """The journal can't be written or read; the message is one line for a person."""


def in_body(path: str, row: str = "") -> str:
    """SQL for what an event's body has there; NULL where the body is spoilt, and no error.

    `row`: the table's name in the query.
    """
    body = f"{row}.body" if row else "body"
    return f"iif(json_valid({body}), json_extract({body}, '{path}'), NULL)"


class Database:
    """A journal's database, which can only be read; of the thread that makes it.

    Everything raises `JournalError` when it can't be read, or is not one that this tbtui reads.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._file = run.database
        try:
            self._db = sqlite3.connect(_address(run), uri=True)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        try:
            (version,) = self.row("PRAGMA user_version")
            if version != FORMAT:
                raise JournalError(
                    f"{self._file}: journal format {version}, this tbtui reads {FORMAT}"
                )
        except JournalError:
            self.close()
            raise

    def rows(
        self, query: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[tuple[Any, ...]]:
        """All that a query finds."""
        return self._found(query, values, sqlite3.Cursor.fetchall)

    def row(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """The first one; None: there is none."""
        return self._found(query, values, sqlite3.Cursor.fetchone)

    def first_spoilt(self, kinds: Collection[str] = ()) -> JournalError | None:
        """Of all events, or those of some kinds: the first one whose body is no JSON."""
        marks = ", ".join("?" * len(kinds))
        where = f"kind IN ({marks}) AND " if kinds else ""
        row = self.row(
            f"SELECT seq, kind FROM events WHERE {where} NOT json_valid(body) ORDER BY seq LIMIT 1",
            tuple(kinds),
        )
        return None if row is None else self.spoilt(*row)

    def spoilt(self, seq: int, what: str) -> JournalError:
        """The row of an event, or of a model call, does not hold what was written there."""
        return JournalError(
            f"{self._file}: row {seq} ({what}) is spoilt; put a sound copy of run.db in its place"
        )

    def close(self) -> None:
        self._db.close()

    def _found[T](
        self,
        query: str,
        values: Sequence[object] | Mapping[str, object],
        fetch: Callable[[sqlite3.Cursor], T],
    ) -> T:
        try:
            try:
                return fetch(self._db.execute(query, values))
            except sqlite3.OperationalError as error:
                if not str(error).startswith("Could not decode"):
                    raise
                # One row's text is not UTF-8: that is for whoever reads it, not for all others.
                self._db.text_factory = _as_far_as_it_goes
                return fetch(self._db.execute(query, values))
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> JournalError:
        if "malformed JSON" in str(error) and (found := self.first_spoilt()) is not None:
            return found
        return JournalError(f"{self._file}: can't be read ({error})")


def _as_far_as_it_goes(text: bytes) -> str:
    """Bytes that are no text become what no JSON may have."""
    return text.decode("utf-8", "surrogateescape")


def _address(run: RunDirectory) -> str:
    # Not the bare path: in an address `#`, `?` and `%` have a meaning.
    address = f"{run.database.absolute().as_uri()}?mode=ro"
    return f"{address}&immutable=1" if _at_rest(run) else address


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
