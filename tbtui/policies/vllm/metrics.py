"""Looks at what a vLLM server counts and measures of itself, its `/metrics`, while there are
requests: percentiles are out of Prometheus's histograms, over what was counted between two
looks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tbtui.policies.base import PolicyError, PolicyRefusedError
from tbtui.policies.meter import RequestMeter
from tbtui.policies.vllm.connection import Connection
from tbtui.server_status import LatencyKind, LatencyStatus, ServerStatus

WINDOW_SEC = 60.0
"""Latencies are of so long: a few seconds see too few requests end, and an hour ago is over."""
_PREFIX = "vllm:"
_LATENCIES: Mapping[LatencyKind, str] = MappingProxyType(
    {
        "first_token": "time_to_first_token_seconds",
        "inter_token": "inter_token_latency_seconds",
        "queue": "request_queue_time_seconds",
        "end_to_end": "e2e_request_latency_seconds",
    }
)
"""Our name of a latency -> vLLM's of its histogram, without the prefix."""
_COUNTED = (
    *("num_requests_running", "num_requests_waiting", "request_success"),
    *("kv_cache_usage_perc", "prefix_cache_queries", "prefix_cache_hits"),
    *("num_preemptions", "generation_tokens"),
)
_WANTED = tuple(_PREFIX + name for name in (*_COUNTED, *_LATENCIES.values()))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many observations were at most so large: upper bound -> count, the last bound infinite.

    The counts grow with the bounds, and with time.
    """

    counts: Mapping[float, float]

    @property
    def total(self) -> float:
        return self.counts.get(math.inf, 0.0)

    def plus(self, other: Histogram) -> Histogram:
        """The sum of both, by the bounds that both have."""
        common = self.counts.keys() & other.counts.keys()
        return Histogram({bound: self.counts[bound] + other.counts[bound] for bound in common})

    def since(self, before: Histogram) -> Histogram | None:
        """What came after `before`; None where the counting has begun anew in between."""
        gained = {
            bound: count - before.counts.get(bound, 0.0) for bound, count in self.counts.items()
        }
        return None if any(count < 0 for count in gained.values()) else Histogram(gained)

    def quantile(self, q: float) -> float | None:
        """As Prometheus's `histogram_quantile`: linear within a bucket, whose lower bound is 0 for
        the first one; beyond the last finite bound, that bound. None without observations.

        https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
        """
        bounds = sorted(self.counts)
        if len(bounds) < 2 or bounds[-1] != math.inf or self.total <= 0:
            return None
        rank = q * self.total
        low, below = 0.0, 0.0
        for high in bounds[:-1]:
            count = self.counts[high]
            if count >= rank and count > below:
                return low + (high - low) * (rank - below) / (count - below)
            # Rounding of floats must not make them fall.
            low, below = high, max(below, count)
        return bounds[-2]


class HistogramWindow:
    """What a server's histograms have gained in the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, Mapping[str, Histogram]]] = deque()

    def gained(self, now: float, histograms: Mapping[str, Histogram]) -> dict[str, Histogram]:
        """A look at `now` (seconds on any clock). Histograms without a look before are left out:
        what they count may be hours old."""
        if any(
            new.since(old) is None
            for name, old in (self._looks[-1][1] if self._looks else {}).items()
            if (new := histograms.get(name)) is not None
        ):
            self._looks.clear()  # the server was started again
        self._looks.append((now, histograms))
        # One from before the window stays, to know what came within it.
        while len(self._looks) > 2 and self._looks[1][0] <= now - self._seconds:
            self._looks.popleft()
        before = self._looks[0][1]
        found = {
            name: new.since(before[name]) for name, new in histograms.items() if name in before
        }
        return {name: gain for name, gain in found.items() if gain is not None and gain.total > 0}


def added_up(several: Iterable[Mapping[str, Histogram]]) -> dict[str, Histogram]:
    """By name, over several servers or engines."""
    sums: dict[str, Histogram] = {}
    for histograms in several:
        for name, each in histograms.items():
            sums[name] = sums[name].plus(each) if name in sums else each
    return sums


@dataclass(frozen=True, slots=True)
class VllmMetrics:
    """One reading of one or several servers; names are vLLM's, without `vllm:`."""

    values: Mapping[str, float]
    """Gauges and counters that are shown, added up over engines; the use of the KV cache is
    the fullest one's. None at all: no vLLM server has said this."""
    histograms: Mapping[str, Histogram]
    """Those of latencies, in seconds, added up over engines."""

    def whole(self, name: str) -> int:
        """A gauge or a counter; 0 where there is none."""
        return self.gauge(name) or 0

    def gauge(self, name: str) -> int | None:
        """None where there is none."""
        value = self.values.get(name)
        return None if value is None else int(value)


_MOST_LINES = 5000
"""Lines of a reading that are looked at: each engine has some dozens that are shown."""
_LARGEST = 1e18
"""What is larger counts nothing: sums of it might be infinite."""


def read_metrics(text: str) -> VllmMetrics:
    """
    Raises:
        ValueError: it isn't Prometheus's text format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, float] = {}
    counts: dict[str, dict[float, float]] = {}
    # A server has thousands of lines, and this happens on the event loop.
    few = "\n".join(itertools.islice(filter(_names_wanted, text.splitlines()), _MOST_LINES))
    for family in text_string_to_metric_families(few + "\n"):
        name = family.name.removeprefix(_PREFIX)
        if family.type == "histogram":
            buckets = counts.setdefault(name, defaultdict(float))
            for sample in family.samples:
                bound = float(sample.labels.get("le", math.nan))
                if not math.isnan(bound) and abs(sample.value) <= _LARGEST:
                    buckets[bound] += sample.value
        else:
            for sample in family.samples:
                if abs(sample.value) <= _LARGEST:
                    _add(values, sample.name.removeprefix(_PREFIX), sample.value)
    return VllmMetrics(values, {name: Histogram(each) for name, each in counts.items()})


def _names_wanted(line: str) -> bool:
    return line.removeprefix("# TYPE ").startswith(_WANTED)


def of_all(servers: Iterable[VllmMetrics]) -> VllmMetrics:
    """Several servers as one."""
    values: dict[str, float] = {}
    several = list(servers)
    for server in several:
        for name, value in server.values.items():
            _add(values, name, value)
    return VllmMetrics(values, added_up(server.histograms for server in several))


def _add(values: dict[str, float], name: str, value: float) -> None:
    before = values.get(name, 0.0)
    values[name] = max(before, value) if name == "kv_cache_usage_perc" else before + value


@dataclass(frozen=True, slots=True)
class InferenceStatus:
    """What a server's inference engines tell of themselves, as in `ServerStatus`."""

    kv_cache_use: float | None
    preemptions: int
    latencies: tuple[LatencyStatus, ...]

    def added_to(self, server: ServerStatus) -> ServerStatus:
        return replace(
            server,
            kv_cache_use=self.kv_cache_use,
            preemptions=self.preemptions,
            latencies=self.latencies,
        )


class InferenceWindow:
    """Latencies and cache use of one or several servers over the last minute."""

    def __init__(self, servers: int = 1) -> None:
        self._windows = tuple(HistogramWindow(WINDOW_SEC) for _ in range(servers))

    def look(self, now: float, servers: Sequence[VllmMetrics]) -> InferenceStatus:
        """`now`: seconds on any clock; `servers`: always the same ones in the same order. A first
        look has no latencies."""
        gained = added_up(
            window.gained(now, each.histograms)
            for window, each in zip(self._windows, servers, strict=True)
        )
        totals = of_all(servers)
        return InferenceStatus(
            kv_cache_use=totals.values.get("kv_cache_usage_perc"),
            preemptions=totals.whole("num_preemptions_total"),
            latencies=tuple(
                latency
                for kind, name in _LATENCIES.items()
                if name in gained and (latency := _latency(kind, gained[name])) is not None
            ),
        )


def _latency(kind: LatencyKind, histogram: Histogram) -> LatencyStatus | None:
    p50, p95 = histogram.quantile(0.50), histogram.quantile(0.95)
    if p50 is None or p95 is None:
        return None
    return LatencyStatus(kind, p50, p95, int(histogram.total))


_BETWEEN_LOOKS_SEC = 1.0
_LATELY_SEC = 10.0
"""What the server said longer ago says nothing of now."""


class ServerWatch:
    """What a server last said of itself, beside what can be seen of it from outside."""

    def __init__(self, connection: Connection, meter: RequestMeter) -> None:
        self._connection = connection
        self._meter = meter
        self._running: int | None = None
        """Requests of all its clients that the server computed when it was last looked at."""
        self._inference: InferenceStatus | None = None
        self._progress: int | None = None
        self._looked_at = -math.inf
        self._asked = asyncio.Event()
        self._looking = asyncio.create_task(self._look())

    def in_flight(self, count: int) -> None:
        """So many requests are unanswered from now on."""
        if count:
            self._asked.set()
        else:
            self._asked.clear()
            self._running = None

    @property
    def progress(self) -> int | None:
        """Grows as it works on anybody's requests; None: it doesn't say."""
        return self._progress

    def running(self, in_flight: int) -> int:
        """How many of so many unanswered requests it computes: it counts everybody's, and ours are
        no more than that."""
        return in_flight if self._running is None else min(in_flight, self._running)

    def status(self) -> ServerStatus:
        server = self._meter.status()
        if self._inference and time.monotonic() - self._looked_at < _LATELY_SEC:
            return self._inference.added_to(server)
        return server

    async def close(self) -> None:
        self._looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking

    async def _look(self) -> None:
        window = InferenceWindow()
        while True:
            await self._asked.wait()
            try:
                text = await self._connection.text("/metrics", "reading metrics")
                metrics = read_metrics(text)
            except PolicyRefusedError:
                return
            except (PolicyError, ValueError):
                # Something else answers there, or the requests themselves show what is wrong.
                self._running = None
            else:
                self._running = metrics.gauge("num_requests_running")
                self._progress = metrics.gauge("generation_tokens_total")
                if metrics.values:
                    self._looked_at = time.monotonic()
                    self._inference = window.look(self._looked_at, [metrics])
            await asyncio.sleep(_BETWEEN_LOOKS_SEC)
