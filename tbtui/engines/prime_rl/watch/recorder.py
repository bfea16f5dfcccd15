"""The journal of a run that is watched: events carry the time at which they happened there."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from tbtui.engines.prime_rl.watch.token_text import Pieces
from tbtui.journal.events import AnyEvent
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord, ids_as_text
from tbtui.journal.writer import JournalWriter


class Recorder:
    """Appends to the journal of `directory`; every method may raise `JournalError`.

    Events stand in the order in which they were learned. Prime-RL tells of a rollout when it is
    over, so an event's time may lie before that of the event in front of it, never within the
    same trial.
    """

    def __init__(self, directory: RunDirectory, *, continues: bool) -> None:
        self.pieces: Pieces = ids_as_text
        """What token ids read as."""
        self._at = time.time()
        self._writer = JournalWriter(directory, lambda: self._at, continues=continues)

    def record(self, event: AnyEvent, at: float | None = None) -> None:
        """`at`: seconds since the epoch; None: now."""
        self._at = at or time.time()
        self._writer.append(event)

    def sample(self, sample: SampleRecord) -> int:
        """Returns the sample's id."""
        return self._writer.add_sample(sample)

    def together(self) -> AbstractContextManager[None]:
        """What is recorded within is there for readers, and after a crash, whole or not at all."""
        return self._writer.together()

    def forget(self, trial: str) -> None:
        """No further sample of the trial comes."""
        self._writer.forget(trial)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
