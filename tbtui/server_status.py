"""The state of a policy's server: measured by the policy, journalled by the engine, shown by panes.

One type all the way, so it stands below all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ServerState = Literal[
    "active",
    "paused_capacity",
    "paused_rate_limit",
    "paused_billing",
    "failing",
    "unreachable",
    "unknown",
]
"""`failing`: it answers requests with an error of its own (500), and they are sent again;
`unreachable`: nothing answers, or a proxy in its place (502 to 504)."""

DOWN: frozenset[ServerState] = frozenset(
    {"paused_capacity", "paused_rate_limit", "paused_billing", "unreachable"}
)
"""States in which it answers no request, and which pass."""

_WORDS: dict[ServerState, str] = {
    "active": "active",
    "paused_capacity": "paused: no capacity",
    "paused_rate_limit": "paused: rate limit",
    "paused_billing": "paused: billing",
    "failing": "answers with errors",
    "unreachable": "unreachable",
    "unknown": "state not reported",
}

RequestKind = Literal[
    "sample", "forward", "forward_backward", "optim_step", "save", "load", "create"
]
LatencyKind = Literal["first_token", "inter_token", "queue", "end_to_end"]


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """Requests of one kind to a server."""

    kind: RequestKind
    in_flight: int
    oldest_sec: float | None
    """Age of the oldest one in flight, when this was measured."""
    completed: int
    """Since the start, failed ones included."""
    failed: int
    p50_sec: float | None
    """Latency of the last ones (at most 256)."""
    p95_sec: float | None


@dataclass(frozen=True, slots=True)
class LatencyStatus:
    """A latency that a server measures itself, over its last minute."""

    kind: LatencyKind
    p50_sec: float
    p95_sec: float
    count: int
    """Measurements that the percentiles are of."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a policy's server says of itself, and what can be seen of it from outside. A queue
    position, its length or an estimated time are in no protocol, so they are not here.

    Journals keep these fields by name.
    """

    state: ServerState
    reason: str
    """In the server's words; empty where it gave none."""
    since: float
    """Seconds since the epoch, of the state."""
    requests: tuple[RequestStatus, ...] = ()
    """Kinds that there have been any of."""
    retries: int = 0
    """Requests sent again, by the client library or by us."""
    prompt_tokens: int = 0
    """Tokens of the prompts of answered sampling requests."""
    cached_tokens: int = 0
    """How many of those the server had in its cache."""
    kv_cache_use: float | None = None
    """Share of its memory for histories that is in use, from 0 to 1; of several inference engines,
    the fullest one's. Only vLLM tells."""
    preemptions: int | None = None
    """Requests of anybody that were put back because that memory was full, since its start (vLLM).
    """
    latencies: tuple[LatencyStatus, ...] = ()
    """Latencies of everybody's requests (vLLM); empty where there were none of late."""

    @property
    def words(self) -> str:
        """The state in words for people."""
        return _WORDS[self.state]

    @property
    def held_up(self) -> bool:
        """Whether the server is paused, failing or out of reach."""
        return self.state in DOWN or self.state == "failing"

    @property
    def is_vllm(self) -> bool:
        """Whether it reports what only vLLM does."""
        return self.preemptions is not None

    @property
    def cache_share(self) -> float | None:
        """Share of the prompt tokens that the server had in its cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.requests)

    @property
    def in_flight(self) -> tuple[RequestStatus, ...]:
        """Kinds of which requests are in flight."""
        return tuple(each for each in self.requests if each.in_flight)

    @property
    def oldest_sec(self) -> float | None:
        """Age of the oldest request in flight, when this was measured."""
        ages = (each.oldest_sec for each in self.requests)
        return max((age for age in ages if age is not None), default=None)
