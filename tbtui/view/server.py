"""The policy's queue and its server, as the screens show them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tbtui.server_status import ServerStatus

NEARLY_FULL = 0.95
"""A KV cache that is fuller will put requests back before long."""
RATE_SEC = 10.0
"""Tokens per second are a mean over so long."""


@dataclass(frozen=True, slots=True)
class PolicyLostView:
    """The policy is gone, and a new one is to take its place."""

    step: int
    reason: str
    time: float
    retry_at: float
    """When a new one is made."""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy as it was measured last."""

    activity: str
    in_flight: int
    running: int
    completed: int
    p50_sec: float | None
    p95_sec: float | None
    measured_at: float
    """Seconds since the epoch."""
    drawn: tuple[tuple[float, int], ...] = ()
    """Time and completion tokens drawn until then, over the last `RATE_SEC`; oldest first."""
    server: ServerStatus | None = None
    """Where the policy is somebody else's server."""

    def ended(self) -> PolicyView:
        """The same after the run: no request is under way any more."""
        server = self.server
        if server is not None:
            over = (replace(each, in_flight=0, oldest_sec=None) for each in server.requests)
            server = replace(server, requests=tuple(over))
        return replace(self, activity="ended", in_flight=0, running=0, drawn=(), server=server)

    def age(self, measured: float | None, now: float) -> float | None:
        """Seconds by now, of a request under way that was `measured` seconds old."""
        return None if measured is None else measured + now - self.measured_at

    def tokens_per_sec(self, now: float) -> float | None:
        """Completion tokens, a mean over the last `RATE_SEC`: it falls while nothing comes. None
        before there are two measurements."""
        if len(self.drawn) < 2:
            return None
        start = now - RATE_SEC
        # What came before the window opened is not of the window.
        base = next((each for each in reversed(self.drawn) if each[0] <= start), self.drawn[0])
        last = self.drawn[-1]
        seconds = max(now, last[0]) - max(base[0], start)
        return (last[1] - base[1]) / seconds if seconds > 0 else None
