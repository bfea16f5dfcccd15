"""All files of a run that are read as they grow, each from where it was left."""

from __future__ import annotations

from pathlib import Path

from tbtui.engines.prime_rl.watch.sealed import SealedChunk
from tbtui.engines.prime_rl.watch.tail import Position, Tail


class Tails:
    """Tails by path. `behind` tells after a round whether a file had more than was read of it."""

    def __init__(self, positions: dict[str, Position]) -> None:
        self._saved = dict(positions)
        self._open: dict[Path, Tail] = {}
        self._sealed: dict[Path, SealedChunk] = {}
        self._whole: set[Path] = set()
        """Sealed chunks that are read to their end."""
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

    def read_sealed(self, path: Path) -> tuple[list[bytes], bool]:
        """As `read`, of a compressed chunk, which goes on where its plain twin was left.

        Raises:
            SealedError: it can't be read.
        """
        if path in self._whole:
            return [], False
        plain = path.with_suffix("")
        saved = self._saved.get(str(path)) or self._saved.get(str(plain)) or Position(0, 0)
        if (twin := self._open.get(plain)) is not None and twin.position is not None:
            saved = twin.position
            self.close(plain)
        chunk = self._sealed.setdefault(path, SealedChunk(path, saved.offset))
        lines = chunk.read()
        if lines is None:
            chunk.close()
            del self._sealed[path]
            self._whole.add(path)
            return [], False
        self._saved[str(path)] = Position(0, chunk.offset)
        self.behind = True
        return lines, True

    def close(self, path: Path) -> None:
        """No more is expected of it for now."""
        if (tail := self._open.pop(path, None)) is not None:
            tail.close()

    def forget(self, path: Path) -> None:
        """Nobody will ask for it again."""
        self.close(path)
        self._saved.pop(str(path), None)

    def close_all(self) -> None:
        for path in list(self._open):
            self.close(path)
        for chunk in self._sealed.values():
            chunk.close()
        self._sealed.clear()

    @property
    def positions(self) -> dict[str, Position]:
        return dict(self._saved)

    @property
    def modified(self) -> float:
        """When the newest of the open files was last written; 0: there is none."""
        return max((tail.modified for tail in self._open.values()), default=0.0)
