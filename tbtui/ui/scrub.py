"""A trial's terminal at another moment than the run's own: to look back while it goes on."""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.recordings import Moment, Recording

if TYPE_CHECKING:
    from tbtui.ui.emulator import Emulator

BUDGET_SEC = 0.05
"""Of reading at once: the rest comes with the next frames."""
_APART_SEC = 0.05
"""Output closer together than this is seen as one change."""
_OUTPUT = re.compile(rb'^\[\s*(\d+(?:\.\d+)?)\s*,\s*"o"', re.MULTILINE)


class Scrub:
    """One trial's recording, at any moment. Times are seconds since the epoch."""

    def __init__(
        self, run: RunDirectory, trial: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = run.recording(trial)
        self._recording = Recording(self._path)
        self._monotonic = monotonic
        self.started_at: float | None = None
        """Of the recording, where it doesn't say so itself."""
        self._began: float | None = None
        self._size = -1
        self._changes: list[float] = []

    def screen(self, at: float) -> Emulator | None:
        """What it showed; None: nothing is recorded. Not there yet after `BUDGET_SEC` of reading:
        then it is on its way there."""
        deadline = self._monotonic() + BUDGET_SEC
        moment = Moment(at, at if self.started_at is None else self.started_at)
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
            size = self._path.stat().st_size
            if size == self._size:
                return
            data = self._path.read_bytes()
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
    except ValueError:
        return None
    match header:
        case {"began": int() | float() as began} | {"timestamp": int() | float() as began}:
            return float(began)
        case _:
            return None
