"""A run as its journal tells it now."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tbtui.command_line import say
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, writer
from tbtui.view.reading import state_at_end
from tbtui.view.state import RunState


@dataclass(frozen=True, slots=True)
class RunReading:
    directory: RunDirectory
    reader: JournalReader
    state: RunState
    pid: int | None
    """Of the process that runs it; None: it is over, or was killed."""
    now: float
    """Seconds since the epoch; of a run that is over, its end."""

    @property
    def live(self) -> bool:
        return self.pid is not None

    @property
    def status(self) -> str:
        """`live`, `paused`, or how it ended; `killed` where it could not say so."""
        if self.live:
            return "paused" if self.state.paused else "live"
        return self.state.status or "killed"


@contextlib.contextmanager
def read_run(directory: RunDirectory) -> Iterator[RunReading]:
    """Raises `JournalError` and `RunDirectoryError`."""
    pid = writer(directory)
    reader = JournalReader(directory, lenient=True)
    try:
        state = state_at_end(reader)
        if reader.trouble:
            say(reader.trouble)
        now = time.time() if pid is not None else state.finished_at or state.time
        yield RunReading(directory, reader, state, pid, now)
    finally:
        reader.close()
