"""When the policy's server holds a run up, told in lines for a person."""

from __future__ import annotations

from collections.abc import Iterator

from tbtui.journal.events import Entry, PolicyLost, PolicyMeasured, RunContinued
from tbtui.server_status import ServerStatus
from tbtui.view.waiting import duration

WORTH_TELLING_SEC = 3.0
"""A pause that is over before is nobody's concern."""


class Preempted:
    """Counts the requests that a full KV cache has put back: told of at 1, 2, 4, ... of them."""

    def __init__(self) -> None:
        self._before: int | None = None
        """When the run was first seen: others may have used the server."""
        self._next = 1

    def lines(self, preemptions: int | None) -> Iterator[str]:
        """`preemptions`: since the server's start."""
        if preemptions is None:
            return
        if self._before is None or preemptions < self._before:
            self._before, self._next = preemptions, 1
        count = preemptions - self._before
        if count >= self._next:
            self._next = count * 2
            requests = "1 request" if count == 1 else f"{count:,} requests"
            yield f"its KV cache is full: {requests} preempted so far, to be computed again"


class ServerLines:
    """Fold every event of the journal in: that of any other kind tells that time has passed."""

    def __init__(self) -> None:
        self._now: ServerStatus | None = None
        self._told: ServerStatus | None = None
        """As it was told of last."""
        self._preempted = Preempted()

    def lines(self, entry: Entry) -> Iterator[str]:
        """What is to be told now: `paused: no capacity (pool full), for 3s so far`."""
        if isinstance(entry.event, PolicyMeasured) and entry.event.server is not None:
            yield from self._preempted.lines(entry.event.server.preemptions)
        match entry.event:
            case PolicyMeasured(server=None) | PolicyLost() | RunContinued():
                self._now = self._told = None
            case PolicyMeasured(server=measured) if measured is not None:
                self._now = measured
            case _:
                pass
        now, told = self._now, self._told
        if now is None:
            return
        reason = f" ({now.reason})" if now.reason else ""
        if now.held_up:
            lasted = entry.time - now.since
            if lasted >= WORTH_TELLING_SEC and (told is None or told.state != now.state):
                self._told = now
                yield f"{now.words}{reason}, for {duration(lasted)} so far"
        elif told is not None and told.held_up:
            self._told = now
            yield f"{now.words}{reason} after {duration(now.since - told.since)}"
        elif now.state == "unknown" and reason and (told is None or told.reason != now.reason):
            self._told = now
            yield f"{now.words}{reason}"
