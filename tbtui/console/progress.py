"""How far a run is, on one line of a terminal's error output that is written over."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tbtui.journal.events import Entry, RunFinished, TrialFinished, TrialQueued


class ProgressLine:
    """Counts a run's trials; adds no lines to its output."""

    def __init__(self) -> None:
        self._queued = self._ended = 0
        self._shown = sys.stderr.isatty()

    def lines(self, entry: Entry) -> Iterator[str]:
        """None; the line is written anew where an event changes it."""
        match entry.event:
            case TrialQueued():
                self._queued += 1
            case TrialFinished():
                self._ended += 1
                self._write(f"{self._ended} of {self._queued} trials")
            case RunFinished():
                self._write("")
            case _:
                pass
        return iter(())

    def _write(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
