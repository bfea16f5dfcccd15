"""The journal of a watched run, and how far the watched directory has been read."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from tbtui.engines.prime_rl.watch.part_logs import Pipeline
from tbtui.engines.prime_rl.watch.tail import Position
from tbtui.engines.prime_rl.watch.turns import Pieces
from tbtui.errors import UserError
from tbtui.journal.events import AnyEvent, Noted
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord, ids_as_text
from tbtui.journal.writer import JournalWriter


class TraceRecorder(AbstractContextManager["TraceRecorder"]):
    """Appends to the journal of `directory`; every method may raise `JournalError`.

    Events carry the time at which they happened and stand in the order in which they were read.
    Prime-RL writes a rollout when it is over, so an event's time may lie before that of the event
    in front of it, never within the same trial.
    """

    def __init__(self, directory: RunDirectory, *, continues: bool) -> None:
        self.pieces: Pieces = ids_as_text
        """Gives the text of token ids."""
        self._at = time.time()
        self._writer = JournalWriter(directory, lambda: self._at, continues=continues)

    def record(self, event: AnyEvent, at: float | None = None) -> None:
        """Journal an event; `at`: seconds since the epoch, None: now."""
        self._at = at or time.time()
        self._writer.append(event)

    def warn(self, text: str) -> None:
        """Journal a line for a person."""
        self.record(Noted(level="warning", text=text))

    def sample(self, sample: SampleRecord) -> int:
        """Journal a sample; returns its id."""
        return self._writer.add_sample(sample)

    def together(self) -> AbstractContextManager[None]:
        """Make what is recorded within one transaction."""
        return self._writer.together()

    def flush(self) -> None:
        """Write what was recorded, for readers to see."""
        self._writer.flush()

    def forget(self, trial: str) -> None:
        """Drop what is kept for a trial: no further sample of it comes."""
        self._writer.forget(trial)

    def __exit__(self, *error: object) -> None:
        self._writer.close()


class Savepoint(msgspec.Struct):
    source: str
    """The directory that is watched."""
    positions: dict[str, Position] = {}
    """By path."""
    floor: int = 0
    """The rollouts of earlier steps are all read, and have no positions."""
    attempt: str | None = None
    """Directory of the logs that were read last."""
    pipeline: Pipeline = msgspec.field(default_factory=Pipeline)
    """State of the parts, as those logs say."""
    checkpoints: list[int] = []
    """Already journalled."""
    over: bool = False
    """The run's end is in the journal."""

    @classmethod
    def load(cls, path: Path, source: Path) -> Savepoint:
        """Read what was saved, or make a fresh one for `source`.

        Raises:
            UserError: it is another directory's, or not a savepoint.
        """
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return cls(str(source))
        except msgspec.DecodeError as error:
            raise UserError(
                f"{path}: not a watcher's position ({error}); delete it to read all again"
            ) from error
        if saved.source != str(source):
            raise UserError(
                f"{path.parent}: holds the journal of {saved.source}; give another --into"
            )
        return saved

    def save(self, path: Path) -> None:
        """Write all of it or nothing."""
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(self))
        unfinished.rename(path)
