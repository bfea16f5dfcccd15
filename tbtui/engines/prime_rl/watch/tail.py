"""Reads the lines that another process appends to a file, as they come."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20
"""Read at once, so that one busy file keeps nobody waiting."""
MAX_LINE_BYTES = 256 << 20
"""A longer line is skipped: it is no record that anybody would write."""


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
        """To go on from in another process; None while there has been no file."""
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
        """Let go of the file; `position` stays."""
        if self._file is not None:
            self._saved = self.position
            os.close(self._file)
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = os.open(self.path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
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
