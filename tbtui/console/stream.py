"""The journal as it grows, event by event, on an output."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

from tbtui.journal.events import Entry, fields_of
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_POLL_SEC = 0.1


def json_line(entry: Entry) -> str:
    """One event as one JSON object on one line: `seq`, `time`, `kind` and its own fields."""
    fields = {"seq": entry.seq, "time": entry.time, **fields_of(entry.event)}
    return json.dumps(fields)


def follow(
    directory: RunDirectory,
    complete: threading.Event,
    lines: Callable[[Entry], Iterator[str]],
    out: TextIO,
    after: int = 0,
) -> None:
    """Write the journal's events as they come, until it is `complete` and written out.

    Waits for whoever reads `out`: it is for a thread of its own. Events up to number `after` belong
    to an earlier part of the run: they are folded in, and not written.

    Raises:
        JournalError: the journal can't be read.
        OSError: nothing can be written; BrokenPipeError: nobody reads `out` any more.
    """
    while not directory.database.exists():
        if complete.is_set():
            return
        complete.wait(_POLL_SEC)
    reader = JournalReader(directory, lenient=True)
    try:
        seq = 0
        while True:
            ending = complete.is_set()
            while entries := reader.read(seq):
                seq = entries[-1].seq
                for entry in entries:
                    for line in lines(entry):
                        if entry.seq > after:
                            out.write(line + "\n")
                out.flush()
            if ending:
                return
            complete.wait(_POLL_SEC)
    finally:
        reader.close()
