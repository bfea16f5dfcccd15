"""What the screens show: a run's state, followed from its files in small bites."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.recordings import Recordings
from tbtui.view.state import RunState
from tbtui.view.transcript import Transcript

if TYPE_CHECKING:
    from tbtui.journal.reader import JournalReader
    from tbtui.view.fold import Fold

_BITE = 200
"""Events read at once: about 5 ms of work."""


class LiveRun:
    """A run as its journal tells it, growing or finished."""

    def __init__(
        self,
        directory: RunDirectory,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        still_at: float | None = None,
    ) -> None:
        """With `still_at` it is read no further than that many seconds after its start."""
        self.directory = directory
        self.clock = clock
        self.recordings = Recordings(directory, monotonic)
        self.trouble = ""
        """Why the journal can't be read, in one line; empty while it can."""
        self.behind = False
        """There is more in the journal than has been read."""
        self.terminals_behind = False
        """There is more in the recordings than has been read."""
        self._monotonic = monotonic
        self._still_at = still_at
        self.state = RunState()
        self._fold: Fold | None = None
        self._reader: JournalReader | None = None

    @property
    def opened(self) -> bool:
        return self._reader is not None

    @property
    def now(self) -> float:
        """Seconds since the epoch; a run that is over stands still at its end."""
        if self.state.finished_at is not None:
            return self.state.finished_at
        return self.clock() if self._until is None else self._until

    @property
    def _until(self) -> float | None:
        """Nothing later than this is shown."""
        if self._still_at is None or self.state.started_at is None:
            return None
        return self.state.started_at + self._still_at

    def follow(self, budget: float) -> bool:
        """Read on for about `budget` seconds; says whether anything was new."""
        reader = self._open()
        if reader is None:
            return False
        fold = self._folding()
        deadline = self._monotonic() + budget
        before = self.state.seq
        self.behind = True
        try:
            while self._monotonic() < deadline:
                entries = reader.read(self.state.seq, _BITE)
                for entry in entries:
                    if self._until is not None and entry.time > self._until:
                        entries = []
                        break
                    fold.apply(entry)
                if len(entries) < _BITE:
                    self.behind = False
                    break
            self.trouble = ""
        except sqlite3.Error as error:
            self.trouble = f"{self.directory.database}: can't be read ({error})"
        return self.state.seq != before

    def progress(self) -> float:
        """How much of the journal has been read, from 0 to 1."""
        if self._reader is None:
            return 0.0
        return self.state.seq / max(1, self._reader.last_seq())

    def tokens(self, sample: int) -> list[tuple[str, float]]:
        return self._reader.sample_tokens(sample) if self._reader else []

    def read_on(self, trial: str, transcript: Transcript) -> bool:
        """Bring a trial's transcript up to date; says whether anything was new."""
        if self._reader is None:
            return False
        entries = self._reader.read_trial(trial, transcript.seq)
        until = self._until
        return transcript.apply(e for e in entries if until is None or e.time <= until)

    def follow_terminals(self, focused: str | None, shown: Sequence[str], budget: float) -> None:
        self.terminals_behind = not self.recordings.advance(
            focused, shown, budget, self._recorded_until
        )

    def _recorded_until(self, trial: str) -> float | None:
        """How far into a trial's recording to read; None: to its end."""
        view = self.state.trials.get(trial)
        if self._until is None or view is None:
            return None
        return self._until - (self._until if view.started_at is None else view.started_at)

    def close(self) -> None:
        self.recordings.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _folding(self) -> Fold:
        if self._fold is None:
            # Brings every class of event along: not before the first frame.
            from tbtui.view.fold import Fold

            self._fold = Fold(self.state)
        return self._fold

    def _open(self) -> JournalReader | None:
        if self._reader is None and self.directory.database.is_file():
            # Brings numpy along: not before the first frame.
            from tbtui.journal.reader import JournalReader
            from tbtui.journal.writer import JournalError

            try:
                self._reader = JournalReader(self.directory)
                self._reader.last_seq()
            except (JournalError, sqlite3.Error) as error:
                # The engine may be in the middle of making it: tried again at the next tick.
                self._reader = None
                self.trouble = str(error)
        return self._reader
