"""Changes of the policy's server and of GPUs, in lines for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tbtui.journal.events import Entry, GpusMeasured, PolicyLost, PolicyMeasured, RunContinued
from tbtui.server_status import ServerStatus
from tbtui.view.waiting import duration

WORTH_TELLING_SEC = 3.0
"""A pause that is over before is nobody's concern."""


class Preempted:
    """Counts the requests that a full KV cache has put back: a line at 1, 2, 4, ... of them."""

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
    """Fold every event of the journal in: one of any other kind shows that time has passed."""

    def __init__(self) -> None:
        self._now: ServerStatus | None = None
        self._last: ServerStatus | None = None
        """As it was in the last line."""
        self._preempted = Preempted()

    def lines(self, entry: Entry) -> Iterator[str]:
        """Lines due now: `paused: no capacity (pool full), for 3s so far`."""
        if isinstance(entry.event, PolicyMeasured) and entry.event.server is not None:
            yield from self._preempted.lines(entry.event.server.preemptions)
        match entry.event:
            case PolicyMeasured(server=None) | PolicyLost() | RunContinued():
                self._now = self._last = None
            case PolicyMeasured(server=measured) if measured is not None:
                self._now = measured
            case _:
                pass
        now, last = self._now, self._last
        if now is None:
            return
        reason = f" ({now.reason})" if now.reason else ""
        if now.held_up:
            lasted = entry.time - now.since
            if lasted >= WORTH_TELLING_SEC and (last is None or last.state != now.state):
                self._last = now
                yield f"{now.words}{reason}, for {duration(lasted)} so far"
        elif last is not None and last.held_up:
            self._last = now
            yield f"{now.words}{reason} after {duration(now.since - last.since)}"
        elif now.state == "unknown" and reason and (last is None or last.reason != now.reason):
            self._last = now
            yield f"{now.words}{reason}"


class GpuLines:
    """Fold every event of the journal in."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        """Machine -> what was said of it last."""

    def lines(self, entry: Entry) -> Iterator[str]:
        """Lines due now: `node-1: 2 x NVIDIA H100 80GB HBM3`, `node-2: Connection refused`. Each
        machine has one when it is seen first, and when that has changed."""
        match entry.event:
            case RunContinued():
                self._last.clear()
            case GpusMeasured() as measured:
                said = _said(measured)
                if self._last.get(measured.host) != said:
                    self._last[measured.host] = said
                    yield f"{measured.host}: {said}"
            case _:
                pass


def _said(measured: GpusMeasured) -> str:
    if measured.unreachable:
        return f"no GPUs to be seen ({measured.unreachable})"
    kinds = Counter(gpu.name for gpu in measured.gpus if not gpu.problem)
    parts = [f"{count} x {name}" for name, count in kinds.items()]
    parts += [f"GPU {gpu.index}: {gpu.problem}" for gpu in measured.gpus if gpu.problem]
    return ", ".join(parts) or "no GPUs"
