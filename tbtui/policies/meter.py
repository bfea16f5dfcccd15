"""Counts requests to a server, and keeps what is known of its state."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from tbtui.server_status import RequestKind, RequestStatus, ServerState, ServerStatus

StateSource = Literal[
    "creation",
    "training",
    "sampling",
    "connection",
    "billing",
    "errors_sampling",
    "errors_training",
    "errors_retrieving",
    "errors_other",
    "caller",
]
"""What a state was seen by: three queues of the server; the transport and the account; the server's
errors by kind of request; our own code."""
_ERRORS: tuple[StateSource, ...] = (
    "errors_sampling",
    "errors_training",
    "errors_retrieving",
    "errors_other",
)

LATENCIES_KEPT = 256

# The worst comes last. Not to know is worse than to hear that all is well, and better than to hear
# that it isn't.
_SEVERITY: dict[ServerState, int] = {
    "active": 0,
    "unknown": 1,
    "paused_rate_limit": 2,
    "paused_capacity": 3,
    "failing": 4,
    "paused_billing": 5,
    "unreachable": 6,
}
_QUEUES: dict[RequestKind, StateSource] = {
    "create": "creation",
    "sample": "sampling",
    "forward": "training",
    "forward_backward": "training",
    "optim_step": "training",
    "save": "training",
    "load": "training",
}


@dataclass(slots=True)
class _Requests:
    """Requests of one kind."""

    started: dict[int, float] = field(default_factory=dict)
    """Start times of those in flight, the oldest first."""
    completed: int = 0
    failed: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT))

    def status(self, kind: RequestKind, now: float) -> RequestStatus:
        oldest = next(iter(self.started.values()), None)
        p50, p95 = np.percentile(self.latencies, (50, 95)) if self.latencies else (None, None)
        return RequestStatus(
            kind=kind,
            in_flight=len(self.started),
            oldest_sec=None if oldest is None else now - oldest,
            completed=self.completed,
            failed=self.failed,
            p50_sec=None if p50 is None else float(p50),
            p95_sec=None if p95 is None else float(p95),
        )


class RequestMeter:
    """Counts requests to a server and keeps what it says of its state.

    Safe to use from several threads: an SDK calls its hooks from a thread of its own. Several
    sources may each say another state; what is shown is the worst of what they say now.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock` measures seconds of requests; `wall` is in seconds since the epoch."""
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._requests: dict[RequestKind, _Requests] = {}
        self._said: dict[StateSource, tuple[ServerState, str]] = {}
        self._state: ServerState = "unknown"
        self._reason = ""
        self._since = wall()
        self._retries = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0

    @contextlib.contextmanager
    def request(self, kind: RequestKind) -> Iterator[None]:
        """One request, from its submission to its answer. An exception counts as a failure; a
        request that we cancel ourselves is neither completed nor failed."""
        with self._lock:
            requests = self._requests.setdefault(kind, _Requests())
            mine = next(self._ids)
            started = requests.started[mine] = self._clock()
        answered = failed = False
        try:
            yield
            answered = True
        except Exception:
            failed = True
            raise
        finally:
            with self._lock:
                del requests.started[mine]
                requests.completed += answered or failed
                requests.failed += failed
                if answered:
                    requests.latencies.append(self._clock() - started)
                    # It went through, so neither the account nor the connection is in the way.
                    self._said = {
                        source: said
                        for source, said in self._said.items()
                        if said[0] not in ("unreachable", "paused_billing")
                    }
                    self._show()
                self._end_pause(_QUEUES[kind])
                if not any(requests.started for requests in self._requests.values()):
                    # What failed is no longer awaited: nothing would take it back.
                    for source in _ERRORS:
                        self._said.pop(source, None)
                    self._show()

    def answered(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A sampling request was answered; of its prompt, so many tokens were in a cache."""
        with self._lock:
            self._prompt_tokens += prompt_tokens
            self._cached_tokens += cached_tokens

    def retried(self, count: int = 1) -> None:
        """A request was sent again."""
        with self._lock:
            self._retries += count

    def state(self, state: ServerState, reason: str = "", source: StateSource = "caller") -> None:
        """What `source` says of the server from now on."""
        with self._lock:
            self._said[source] = (state, reason)
            self._show()

    def withdraw(self, source: StateSource) -> None:
        """`source` has nothing more to say."""
        with self._lock:
            self._said.pop(source, None)
            self._show()

    def latencies(self, kind: RequestKind) -> tuple[float, ...]:
        """Seconds, of the last answered requests (at most 256)."""
        with self._lock:
            requests = self._requests.get(kind)
            return tuple(requests.latencies) if requests else ()

    def in_flight(self, kind: RequestKind) -> int:
        with self._lock:
            requests = self._requests.get(kind)
            return len(requests.started) if requests else 0

    def completed(self, kind: RequestKind) -> int:
        """Failed ones included."""
        with self._lock:
            requests = self._requests.get(kind)
            return requests.completed if requests else 0

    def status(self) -> ServerStatus:
        with self._lock:
            now = self._clock()
            return ServerStatus(
                state=self._state,
                reason=self._reason,
                since=self._since,
                requests=tuple(
                    self._requests[kind].status(kind, now)
                    for kind in get_args(RequestKind)
                    if kind in self._requests
                ),
                retries=self._retries,
                prompt_tokens=self._prompt_tokens,
                cached_tokens=self._cached_tokens,
            )

    def _end_pause(self, queue: StateSource) -> None:
        """A queue speaks only of requests that wait in it: when the last of them has failed or
        was cancelled, nothing would ever take its pause back."""
        said = self._said.get(queue)
        if said is None or not said[0].startswith("paused"):
            return
        if not any(
            requests.started for kind, requests in self._requests.items() if _QUEUES[kind] == queue
        ):
            del self._said[queue]
            self._show()

    def _show(self) -> None:
        """Take up the worst of what is said; the time moves only with the state."""
        state, reason = max(
            self._said.values(), key=lambda said: _SEVERITY[said[0]], default=("unknown", "")
        )
        if state != self._state:
            self._state, self._since = state, self._wall()
        self._reason = reason
