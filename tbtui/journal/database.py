"""The database that a journal is, for those who look at it without reading its events."""

from __future__ import annotations

import contextlib
import sqlite3

from tbtui.journal.rundir import RunDirectory

FORMAT = 2


class JournalError(Exception):
    """The journal can't be written or read; the message is one line for a person."""


def connect(run: RunDirectory) -> sqlite3.Connection:
    """A connection that can only read; of the thread that makes it."""
    return sqlite3.connect(f"file:{run.database}?mode=ro", uri=True)


def require_format(run: RunDirectory) -> None:
    """Raise `JournalError` when the directory's journal is not one that this tbtui reads."""
    try:
        with contextlib.closing(connect(run)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise JournalError(f"{run.database}: can't read the journal ({error})") from error
    if version != FORMAT:
        raise JournalError(f"{run.database}: journal format {version}, this tbtui reads {FORMAT}")


def seq_at(db: sqlite3.Connection, time: float) -> int:
    """Number of the last event no later than `time`; 0: none. Looks at a few events only."""
    low, high = 0, int(db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])
    while low < high:
        middle = (low + high + 1) // 2
        (written,) = db.execute("SELECT time FROM events WHERE seq = ?", (middle,)).fetchone()
        low, high = (middle, high) if written <= time else (low, middle - 1)
    return low
