"""How far a watched directory has been read: a watcher that starts again goes on from there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tbtui.engines.prime_rl.watch.pipeline import Pipeline
from tbtui.engines.prime_rl.watch.tail import Position
from tbtui.errors import UserError


class SavepointError(UserError):
    """It can't be read; the message is one line for a person."""


class Savepoint(msgspec.Struct):
    source: str
    """The directory that is watched."""
    positions: dict[str, Position] = {}
    """By path."""
    floor: int = 0
    """The rollouts of earlier steps are all read, and have no positions."""
    attempt: str | None = None
    """Of the logs that were read last."""
    pipeline: Pipeline = msgspec.field(default_factory=Pipeline)
    """As those logs told."""
    checkpoints: list[int] = []
    """Already journalled."""
    over: bool = False
    """The run's end is in the journal."""

    @classmethod
    def load(cls, path: Path, source: Path) -> Savepoint:
        """What was saved, or a fresh one for `source`.

        Raises:
            SavepointError: it is of another directory, or none of ours.
        """
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return cls(str(source))
        except msgspec.DecodeError as error:
            raise SavepointError(
                f"{path}: not a watcher's position ({error}); delete it to read all again"
            ) from error
        if saved.source != str(source):
            raise SavepointError(
                f"{path.parent}: holds the journal of {saved.source}; give another --into"
            )
        return saved

    def save(self, path: Path) -> None:
        """All of it or nothing."""
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(self))
        unfinished.rename(path)
