"""Reads lines that other processes append to files, from a saved position on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tbtui.errors import UserError
from tbtui.paths import open_plain

CHUNK_BYTES = 1 << 20
"""Read at once, so that one busy file does not hold up the others."""
MAX_LINE_BYTES = 256 << 20
"""A longer line is skipped: no record is as long."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file has been read."""

    inode: int
    offset: int
    """Bytes up to the end of the last complete line that was read."""


class Tail:
    """The complete lines of a growing file, from a saved position on.

    The file may not be there yet, may be cut off or replaced by another of its name (what the old
    one still had is read first), and its last line may be unfinished: that one waits for its end.
    """

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self.path = path
        self.skipped = 0
        """Lines that were too long."""
        self._file: int | None = None
        self._saved = position
        self._offset = 0
        """Where the next read starts."""
        self._partial = bytearray()
        self._skipping = False

    @property
    def position(self) -> Position | None:
        """Where another process goes on; None while there has been no file."""
        if self._file is None:
            return self._saved
        return Position(os.fstat(self._file).st_ino, self._offset - len(self._partial))

    def read(self) -> list[bytes]:
        """The next lines, without their ends, out of at most `CHUNK_BYTES`; empty: none yet."""
        if self._file is None and not self._open():
            return []
        assert self._file is not None
        if os.fstat(self._file).st_size < self._offset:
            self._restart()
        data = os.pread(self._file, CHUNK_BYTES, self._offset)
        if not data and self._replaced():
            self.close()
            self._saved = None
            return self.read() if self._open() else []
        self._offset += len(data)
        return self._lines(data)

    @property
    def behind(self) -> bool:
        """Whether there is more to read at once."""
        return self._file is not None and os.fstat(self._file).st_size > self._offset

    @property
    def modified(self) -> float:
        """When the file was last written, in seconds since the epoch; 0: there is none."""
        return 0.0 if self._file is None else os.fstat(self._file).st_mtime

    def close(self) -> None:
        """Close the file; `position` stays."""
        if self._file is not None:
            self._saved = self.position
            os.close(self._file)
            self._file = None

    def _open(self) -> bool:
        try:
            with open_plain(self.path) as file:
                self._file = os.dup(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise UserError(f"{self.path}: can't be read ({error.strerror})") from error
        self._restart()
        found, saved = os.fstat(self._file), self._saved
        if saved is not None and saved.inode == found.st_ino and saved.offset <= found.st_size:
            self._offset = saved.offset
        return True

    def _restart(self) -> None:
        self._offset, self._skipping = 0, False
        self._partial.clear()

    def _replaced(self) -> bool:
        assert self._file is not None
        try:
            return self.path.stat().st_ino != os.fstat(self._file).st_ino
        except (FileNotFoundError, NotADirectoryError):
            # Deleted, or about to come back: what we have open is read to its end already.
            return False

    def _lines(self, data: bytes) -> list[bytes]:
        *complete, rest = data.split(b"\n")
        if complete:
            if self._skipping:
                complete = complete[1:]
                self._skipping = False
            else:
                complete[0] = bytes(self._partial) + complete[0]
            self._partial.clear()
        if self._skipping:
            return []
        self._partial += rest
        if len(self._partial) > MAX_LINE_BYTES:
            self.skipped += 1
            self._skipping = True
            self._partial.clear()
        return complete


class Tails:
    """Tails by path. `behind`: in this round, a file had more than was read of it."""

    def __init__(self, positions: dict[str, Position]) -> None:
        self._saved = dict(positions)
        self._open: dict[Path, Tail] = {}
        self.behind = False
        self.skipped = 0
        """Lines that were too long to be read."""

    def read(self, path: Path, *, remember: bool = True) -> tuple[list[bytes], bool]:
        """The next lines of a file, and whether it has more.

        `remember`: a watcher that starts again goes on behind them.
        """
        tail = self._open.get(path)
        if tail is None:
            saved = self._saved.get(str(path)) if remember else None
            tail = self._open[path] = Tail(path, saved)
        before = tail.skipped
        lines = tail.read()
        self.skipped += tail.skipped - before
        if remember and (position := tail.position) is not None:
            self._saved[str(path)] = position
        behind = tail.behind
        self.behind |= behind
        return lines, behind

    def close(self, path: Path) -> None:
        """Close it: it is not expected to grow for now."""
        if (tail := self._open.pop(path, None)) is not None:
            tail.close()

    def forget(self, path: Path) -> None:
        """Close a file and forget its position: it is not read again."""
        self.close(path)
        self._saved.pop(str(path), None)

    def close_all(self) -> None:
        for path in list(self._open):
            self.close(path)

    @property
    def positions(self) -> dict[str, Position]:
        return dict(self._saved)

    @property
    def modified(self) -> float:
        """When the newest of the open files was last written; 0: there is none."""
        return max((tail.modified for tail in self._open.values()), default=0.0)
