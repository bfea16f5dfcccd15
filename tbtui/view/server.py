"""The policy's queue as people see it: what is known of it, and what is not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbtui.journal.events import LatencyMeasured

NEARLY_FULL = 0.95
"""A KV cache that is fuller will put requests back before long."""
RATE_SEC = 10.0
"""Tokens per second are a mean over so long."""

_STATE_WORDS = {
    "active": "active",
    "paused_capacity": "paused: no capacity",
    "paused_rate_limit": "paused: rate limit",
    "paused_billing": "paused: billing",
    "failing": "answers with errors",
    "unreachable": "unreachable",
}


@dataclass(frozen=True, slots=True)
class RequestsView:
    """Requests of one kind to the policy's server."""

    kind: str
    in_flight: int
    oldest_at: float | None
    """When the oldest one in flight was handed in, seconds since the epoch."""
    completed: int
    failed: int
    p50_sec: float | None
    p95_sec: float | None


@dataclass(frozen=True, slots=True)
class ServerView:
    """The server that the policy is on."""

    state: str
    reason: str
    """In the server's own words."""
    since: float
    """Seconds since the epoch."""
    requests: tuple[RequestsView, ...] = ()
    retries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    kv_cache_use: float | None = None
    """From 0 to 1, where it tells."""
    preemptions: int | None = None
    """Requests that it put back because the cache was full."""
    latencies: tuple[LatencyMeasured, ...] = ()

    @property
    def is_vllm(self) -> bool:
        """It has told of itself as vLLM does."""
        return self.preemptions is not None

    @property
    def words(self) -> str:
        return _STATE_WORDS.get(self.state, "state not told")

    @property
    def held_up(self) -> bool:
        """Requests wait for something that we can't hurry."""
        return self.state in ("unreachable", "failing") or self.state.startswith("paused")

    def ended(self) -> ServerView:
        """After the run: of what was under way then, nothing is asked for any more."""
        over = (replace(each, in_flight=0, oldest_at=None) for each in self.requests)
        return replace(self, requests=tuple(over))

    @property
    def cache_share(self) -> float | None:
        """Of the prompt tokens, those that the server had in its cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.requests)

    @property
    def in_flight(self) -> tuple[RequestsView, ...]:
        return tuple(each for each in self.requests if each.in_flight)

    @property
    def oldest_at(self) -> float | None:
        """When the oldest request in flight was handed in."""
        return min((r.oldest_at for r in self.requests if r.oldest_at is not None), default=None)


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
    activity: str
    in_flight: int
    running: int
    completed: int
    p50_sec: float | None
    p95_sec: float | None
    drawn: tuple[tuple[float, int], ...] = ()
    """Time and completion tokens drawn until then, over the last `RATE_SEC`; oldest first."""
    server: ServerView | None = None
    """Where the policy is somebody else's server."""

    def ended(self) -> PolicyView:
        """After the run: what it was at last asked for nobody waits any more."""
        server = None if self.server is None else self.server.ended()
        return replace(self, activity="ended", in_flight=0, running=0, drawn=(), server=server)

    def tokens_per_sec(self, now: float) -> float | None:
        """A mean over the last `RATE_SEC`; it falls while nothing comes."""
        return tokens_per_sec(self.drawn, now)


def tokens_per_sec(drawn: Sequence[tuple[float, int]], now: float) -> float | None:
    """`drawn`: time and tokens until then, oldest first; None before there are two."""
    if len(drawn) < 2:
        return None
    start = now - RATE_SEC
    # What came before the window opened is not of the window.
    base = next((each for each in reversed(drawn) if each[0] <= start), drawn[0])
    seconds = max(now, drawn[-1][0]) - max(base[0], start)
    return (drawn[-1][1] - base[1]) / seconds if seconds > 0 else None
