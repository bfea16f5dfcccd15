"""Reads the trials' `recording.cast` files (asciicast v2): as they grow, and at any moment."""

from __future__ import annotations

import json
import mmap
import re
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from tbtui.journal.database import is_time
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import MOST_RECORDED, open_plain, read_plain

if TYPE_CHECKING:
    from tbtui.ui.terminal.emulator import Emulator


_CHUNK = 16 * 1024
_MAX_LINE = 8 * 1024 * 1024
_KEPT = 12
"""Half a megabyte each; those on the screen are kept besides."""
_WINDOW = 64 * 1024
"""Bytes of a recording that a screen is drawn from after a jump: many screens full."""

_WIDEST, _HIGHEST = 1000, 500
"""The most cells of a terminal, whatever a recording says."""

_TIME = re.compile(rb"\[\s*(\d+(?:\.\d+)?)\s*,")
_ALTERNATE = re.compile(rb"\\u001b\[\?(?:1049|1047|47)([hl])")
"""A full-screen program comes or goes."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """How far into a recording to read. Both in seconds since the epoch."""

    at: float
    started_at: float
    """The start of the recording, where it doesn't say so itself."""


class RecordingReader:
    """One recording, read as far as it has been written, or up to a moment.

    A jump of more than `_WINDOW` bytes draws the screen from the last `_WINDOW` before the moment
    alone, on the alternate screen if a program had switched to that: what a program drew once,
    longer ago than that, and never again, is missing then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._next = 0
        """Where in the file the next line begins."""
        self._first = 0
        """Where the first line of output begins."""
        self._size = (160, 40)
        self._began: float | None = None
        """Seconds since the epoch, as the header tells."""
        self._beyond: float | None = None
        """Seconds into the recording, of the next line; None: not known to be too late."""
        self.screen: Emulator | None = None
        """None until the header has been read."""
        self.time = 0.0
        """Seconds into the recording, of the last output read."""

    def advance(self, moment: ReadLimit | None = None) -> bool:
        """Read one chunk more, nothing later than `moment`; False when there is no more."""
        if self._file is None:
            try:
                self._file = open_plain(self._path)
            except OSError:
                # Not there yet: it appears when the trial's terminal does.
                return False
        if self.screen is None and not self._read_header():
            return False
        until = None
        if moment is not None:
            until = moment.at - (moment.started_at if self._began is None else self._began)
            drawn = self.time if self._next > self._first else -inf
            if self._beyond is not None and drawn <= until < self._beyond:
                return False
            self._jump(until)
        return self._read_chunk(until)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read_header(self) -> bool:
        line = self._line_at(0)
        if line is None:
            return False
        match _parsed(line):
            case {"width": int(columns), "height": int(rows)} as header:
                self._size = _within(columns, _WIDEST), _within(rows, _HIGHEST)
                self._first = len(line)
                began = header.get("began", header.get("timestamp"))
                if is_time(began):
                    self._began = float(began)
            case _:
                # Not a recording; what follows may still be good.
                pass
        self._blank(self._first)
        return True

    def _read_chunk(self, until: float | None) -> bool:
        assert self._file is not None
        self._beyond = None
        self._file.seek(self._next)
        data = self._file.read(_CHUNK)
        end = data.rfind(b"\n") + 1
        if not end:
            line = self._line_at(self._next) if len(data) == _CHUNK else None
            if line is None:
                return False
            data, end = line, len(line)
        for line in data[:end].splitlines(keepends=True):
            if not self._feed(line, until):
                return False
            self._next += len(line)
        return True

    def _feed(self, line: bytes, until: float | None) -> bool:
        """Show a line's output; False: it is too late."""
        match _parsed(line):
            case [int() | float() as time, "o", str(text)]:
                if until is not None and time > until:
                    self._beyond = float(time)
                    return False
                assert self.screen is not None
                self.screen.feed(text)
                self.time = float(time)
            case _:
                # A line cut off by a crash, or not a recording: what follows may still be good.
                pass
        return True

    def _line_at(self, offset: int) -> bytes | None:
        """The line that begins there; None: it has no end yet. One too long is cut."""
        assert self._file is not None
        self._file.seek(offset)
        line = self._file.readline(_MAX_LINE)
        return line if line.endswith(b"\n") or len(line) == _MAX_LINE else None

    # Going about

    def _jump(self, until: float) -> None:
        """Begin anew before `until`, where that is shorter than to read on, or the only way."""
        if until < self.time and self._next > self._first:
            self._blank(self._first)
        assert self._file is not None
        size = min(self._file.seek(0, 2), MOST_RECORDED)
        if size - self._next <= 2 * _WINDOW:
            return
        with mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ) as data:
            place = _offset_after(data, self._next, size, until)
            start = place - _WINDOW
            if start <= self._next + _WINDOW:
                return
            start = data.find(b"\n", start) + 1
            switch = _last_switch(data, self._first, start)
        self._blank(start)
        if switch == b"h" and self.screen is not None:
            self.screen.feed("\x1b[?1049h")

    def _blank(self, offset: int) -> None:
        """An empty screen, to be drawn from `offset` on."""
        # The emulator takes 0.4 s to import: never before the first frame.
        from tbtui.ui.terminal.emulator import Emulator

        version = 0 if self.screen is None else self.screen.version + 1
        self.screen = Emulator(*self._size)
        # It takes the place of another one, which is seen by its version.
        self.screen.version = version
        self._next, self._beyond, self.time = offset, None, 0.0


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (RecursionError, ValueError):
        return None


def _within(size: int, most: int) -> int:
    return min(max(1, size), most)


def _offset_after(data: mmap.mmap, low: int, high: int, until: float) -> int:
    """Return where the first line later than `until` begins, or one shortly before it."""
    while high - low > _CHUNK:
        middle = (low + high) // 2
        line = data.find(b"\n", middle) + 1
        time = _TIME.match(data, line) if line else None
        if line and time is not None and float(time[1]) <= until:
            low = line
        else:
            high = middle
    return low


def _last_switch(data: mmap.mmap, start: int, end: int) -> bytes:
    """`h` where the program on the alternate screen has not left by `end`."""
    place = end
    while (place := data.rfind(b"\\u001b[?", start, place)) >= 0:
        if (switch := _ALTERNATE.match(data, place)) is not None:
            return switch[1]
    return b"l"


class Recordings:
    """The recordings on the screen, read within a time budget."""

    def __init__(self, run: RunDirectory, monotonic: Callable[[], float]) -> None:
        self._run = run
        self._monotonic = monotonic
        self._open: OrderedDict[str, RecordingReader] = OrderedDict()
        self._next = 0
        """The recording whose turn it is in the round-robin."""

    def screen(self, trial: str) -> Emulator | None:
        recording = self._open.get(trial)
        return recording.screen if recording else None

    def advance(
        self,
        focused: str | None,
        shown: Sequence[str],
        budget: float,
        until: Callable[[str], ReadLimit | None] = lambda trial: None,
        *,
        only_new: bool = False,
    ) -> bool:
        """Read on: the focused trial first, then the shown ones in turns, for `budget` seconds.

        `until` says how far into a trial's recording to read; None: as far as it goes. With
        `only_new` those of the shown ones stay as they are that have been read before. Returns
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
            read_before = shown[index] in self._open
            recording = self._get(shown[index])
            if only_new and read_before:
                continue
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

    def _get(self, trial: str) -> RecordingReader:
        recording = self._open.get(trial)
        if recording is None:
            recording = self._open[trial] = RecordingReader(self._run.recording(trial))
        self._open.move_to_end(trial)
        return recording

    def _forget(self, keep: int) -> None:
        while len(self._open) > keep:
            self._open.popitem(last=False)[1].close()


BUDGET_SEC = 0.05
"""Seconds of reading at once: the rest comes with the next frames."""
_APART_SEC = 0.05
"""Output closer together than this is seen as one change."""
_OUTPUT = re.compile(rb'^\[\s*(\d+(?:\.\d+)?)\s*,\s*"o"', re.MULTILINE)


class Scrub:
    """One trial's recording, at any moment. Times are seconds since the epoch."""

    def __init__(
        self, run: RunDirectory, trial: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = run.recording(trial)
        self._recording = RecordingReader(self._path)
        self._monotonic = monotonic
        self.started_at: float | None = None
        """The start of the recording, where it doesn't say so itself."""
        self._began: float | None = None
        self._size = -1
        self._changes: list[float] = []

    def screen(self, at: float) -> Emulator | None:
        """What it showed; None: nothing is recorded. Not there yet after `BUDGET_SEC` of reading:
        then it is on its way there."""
        deadline = self._monotonic() + BUDGET_SEC
        moment = ReadLimit(at, at if self.started_at is None else self.started_at)
        while self._recording.advance(moment) and self._monotonic() < deadline:
            pass
        return self._recording.screen

    def change(self, at: float, direction: Literal[-1, 1]) -> float | None:
        """When the screen changed next, or last before; None: it didn't."""
        self._read()
        if self._began is None:
            return None
        changes = self._changes
        if direction > 0:
            place = bisect_right(changes, at - self._began + 1e-6)
            return self._began + changes[place] if place < len(changes) else None
        place = bisect_left(changes, at - self._began - 1e-6)
        return self._began + changes[place - 1] if place else None

    def close(self) -> None:
        self._recording.close()

    def _read(self) -> None:
        """When its output came, if the file has grown since."""
        try:
            size = self._path.lstat().st_size
            if size == self._size:
                return
            data = read_plain(self._path, MOST_RECORDED)
        except OSError:
            return
        self._size = size
        began = _began(data)
        self._began = self.started_at if began is None else began
        self._changes = []
        for found in _OUTPUT.finditer(data):
            at = float(found[1])
            if self._changes and at - self._changes[-1] < _APART_SEC:
                # The later one: the screen as it stands after the burst.
                self._changes[-1] = at
            else:
                self._changes.append(at)


def _began(data: bytes) -> float | None:
    try:
        header = json.loads(data.split(b"\n", 1)[0])
    except (RecursionError, ValueError):
        return None
    match header:
        case {"began": began} | {"timestamp": began} if is_time(began):
            return float(began)
        case _:
            return None
