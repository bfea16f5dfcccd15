"""Chunks of the later layout's trace stream that Prime-RL has closed and compressed."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import zstandard

from tbtui.engines.prime_rl.watch.tail import CHUNK_BYTES


class SealedError(Exception):
    """It can't be read; the message is one line for a person."""


class SealedChunk:
    """The lines of a `.jsonl.zst` from an offset in what it holds, in bounded pieces."""

    def __init__(self, path: Path, offset: int) -> None:
        self.path = path
        self.offset = 0
        """Of the end of the last complete line that was read."""
        self._skip = offset
        self._at = 0
        self._partial = b""
        self._file: BinaryIO | None = None
        self._stream: zstandard.ZstdDecompressionReader | None = None

    def read(self) -> list[bytes] | None:
        """The next lines; None: that was all. Raises `SealedError` when it is damaged."""
        try:
            if self._stream is None:
                self._file = self.path.open("rb")
                # Frames stand one behind the other, so that a reader may begin at any of them.
                self._stream = zstandard.ZstdDecompressor().stream_reader(
                    self._file, read_across_frames=True
                )
            while self._skip:
                skipped = len(self._stream.read(min(CHUNK_BYTES, self._skip)))
                self._skip = self._skip - skipped if skipped else 0
                self._at += skipped
            data = self._stream.read(CHUNK_BYTES)
        except (OSError, zstandard.ZstdError) as error:
            raise SealedError(f"{self.path}: can't be read ({error})") from error
        if not data:
            return None
        *lines, rest = (self._partial + data).split(b"\n")
        self._at += len(data)
        self._partial, self.offset = rest, self._at - len(rest)
        return lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._stream = None
