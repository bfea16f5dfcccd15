"""Which events had been told by a given time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tbtui.journal.database import Database


@dataclass(frozen=True, slots=True)
class _Dip:
    """Events that tell of times before the one in front of them."""

    first: int
    """Number of its first event."""
    end: int | None
    """Of the first event after it; None: it lasts until the journal's end."""
    time: float
    """Of the event in front of it."""


class EventTimes:
    """Finds events by time. Times are seconds since the epoch.

    An event is told no earlier than any that stands before it in the journal, whatever its own
    time: of some runs trials are told of when they are over, and a machine's clock may be set
    back. So times told never go backwards.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._dips: list[_Dip] = []
        self._known = 1
        """Up to this event dips have been looked for: once, as it means to look at every event."""

    def seq_at(self, time: float) -> int:
        """Number of the last event told no later than `time`; 0: none."""
        low, high = 0, self._look()
        while low < high:
            middle = (low + high + 1) // 2
            (written,) = self._db.row("SELECT time FROM events WHERE seq = ?", (middle,))
            low, high = (middle, high) if self._told(middle, written) <= time else (low, middle - 1)
        return low

    def told(self, seq: int, time: float) -> float:
        """When an event was told, by its number and its own time."""
        self._look()
        return self._told(seq, time)

    def _told(self, seq: int, time: float) -> float:
        place = bisect_right(self._dips, seq, key=lambda dip: dip.first)
        if not place:
            return time
        dip = self._dips[place - 1]
        return dip.time if dip.end is None or seq < dip.end else time

    def _look(self) -> int:
        """Look for dips in what is new; returns the last event's number."""
        last = self._db.last_seq()
        if last <= self._known:
            return last
        if (seq := self._db.timeless(self._known - 1)) is not None:
            raise self._db.spoilt(seq, "its time")
        if self._dips and self._dips[-1].end is None:
            dip = self._dips.pop()
            self._dips.append(self._dip(dip.first, dip.time))
        falls = self._db.rows(
            "SELECT later.seq, earlier.time FROM events AS earlier"
            " JOIN events AS later ON later.seq = earlier.seq + 1"
            " WHERE earlier.seq >= ? AND earlier.seq < ? AND later.time < earlier.time"
            " ORDER BY later.seq",
            (self._known, last),
        )
        for seq, time in falls:
            before = self._dips[-1] if self._dips else None
            if before is None or (before.end is not None and before.end < seq):
                self._dips.append(self._dip(seq, time))
        self._known = last
        return last

    def _dip(self, first: int, time: float) -> _Dip:
        row = self._db.row(
            "SELECT seq FROM events WHERE seq > ? AND time >= ? ORDER BY seq LIMIT 1",
            (first, time),
        )
        return _Dip(first, row[0] if row else None, time)
