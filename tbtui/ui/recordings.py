"""Follows the trials' `recording.cast` files (asciicast v2) while they grow."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.ui.emulator import Emulator

_CHUNK = 16 * 1024
_MAX_LINE = 8 * 1024 * 1024
_KEPT = 96


class Recording:
    """One recording, read as far as it has been written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._partial = b""
        self.screen: Emulator | None = None
        """None until the header has been read."""
        self.time = 0.0
        """Seconds into the recording, of the last output read."""

    def advance(self, until: float | None = None) -> bool:
        """Read one chunk more, output later than `until` seconds left out; False at the end."""
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except OSError:
                # Not there yet: it appears when the trial's terminal does.
                return False
        data = self._file.read(_CHUNK)
        if not data:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _MAX_LINE:
            self._partial = b""
        for line in lines:
            self._line(line, until)
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _line(self, line: bytes, until: float | None) -> None:
        try:
            entry: Any = json.loads(line)
        except ValueError:
            # A line cut off by a crash, or not a recording: what follows may still be good.
            return
        match entry:
            case {"width": int(columns), "height": int(rows)} if self.screen is None:
                self._open(columns, rows)
            case [int() | float() as time, "o", str(text)] if until is None or time <= until:
                screen = self.screen or self._open(160, 40)
                screen.feed(text)
                self.time = float(time)
            case _:
                pass

    def _open(self, columns: int, rows: int) -> Emulator:
        # The emulator takes 0.4 s to import: never before the first frame.
        from tbtui.ui.emulator import Emulator

        self.screen = Emulator(columns, rows)
        return self.screen


class Recordings:
    """The recordings that somebody looks at, within a time budget."""

    def __init__(self, run: RunDirectory, monotonic: Callable[[], float]) -> None:
        self._run = run
        self._monotonic = monotonic
        self._open: OrderedDict[str, Recording] = OrderedDict()
        self._next = 0
        """Whose turn it is in the round-robin."""

    def screen(self, trial: str) -> Emulator | None:
        recording = self._open.get(trial)
        return recording.screen if recording else None

    def advance(
        self,
        focused: str | None,
        shown: Sequence[str],
        budget: float,
        until: Callable[[str], float | None] = lambda trial: None,
    ) -> bool:
        """Read on: the focused trial first, then the shown ones in turns, for `budget` seconds.

        `until` says how far into a trial's recording to read; None: as far as it goes. Returns
        whether all has been read.
        """
        deadline = self._monotonic() + budget
        if focused is not None:
            recording = self._get(focused)
            limit = until(focused)
            while recording.advance(limit) and self._monotonic() < deadline:
                pass
        count = len(shown)
        for offset in range(count):
            index = (self._next + offset) % count
            recording = self._get(shown[index])
            limit = until(shown[index])
            while recording.advance(limit):
                if self._monotonic() >= deadline:
                    self._next = index
                    return False
        self._forget(keep=max(_KEPT, count + 1))
        return self._monotonic() < deadline

    def close(self) -> None:
        for recording in self._open.values():
            recording.close()
        self._open.clear()

    def _get(self, trial: str) -> Recording:
        recording = self._open.get(trial)
        if recording is None:
            recording = self._open[trial] = Recording(self._run.recording(trial))
        self._open.move_to_end(trial)
        return recording

    def _forget(self, keep: int) -> None:
        while len(self._open) > keep:
            self._open.popitem(last=False)[1].close()
