"""Reads vLLM's `/metrics`: its queue, cache, latencies and sampled tokens."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit

from tbtui.errors import UserError
from tbtui.journal.events import PolicyMeasured
from tbtui.policies.vllm.metrics import InferenceWindow, VllmMetrics, of_all, read_metrics
from tbtui.server_status import LatencyStatus, ServerState, ServerStatus

_TIMEOUT_SEC = 5.0
_MAX_BYTES = 16 << 20


class ServerMetricsError(UserError):
    """The metrics can't be read; the message is one line for a person."""


class ServerMetrics:
    """Asks one or several servers and adds up their figures."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        """`urls`: of the servers, with or without a path (`http://host:8000/v1` is one)."""
        self._urls = tuple(metrics_url(url) for url in urls)
        self._clock = clock
        self._state = ""
        self._since = 0.0
        self._window = InferenceWindow(len(self._urls))
        self._counted = VllmMetrics({}, {})
        """Counters as read last, kept while a server does not answer."""

    def measure(self) -> PolicyMeasured:
        """Ask all servers; blocks for some seconds at most. No answer is a state, not an error."""
        try:
            found = [parse(_fetch(url)) for url in self._urls]
        except ServerMetricsError as error:
            return self._measured(self._counted, (), "unreachable", str(error))
        inference = self._window.look(self._clock(), found)
        totals = of_all(found)
        counted = {name: n for name, n in totals.values.items() if name.endswith("_total")}
        self._counted = VllmMetrics(counted, {})
        return self._measured(totals, inference.latencies, "active", "")

    def _measured(
        self,
        totals: VllmMetrics,
        latencies: tuple[LatencyStatus, ...],
        state: ServerState,
        reason: str,
    ) -> PolicyMeasured:
        if state != self._state:
            self._state, self._since = state, self._clock()
        running, waiting = (
            totals.whole("num_requests_running"),
            totals.whole("num_requests_waiting"),
        )
        whole = next((each for each in latencies if each.kind == "end_to_end"), None)
        return PolicyMeasured(
            activity="sampling" if running else "idle",
            in_flight=running + waiting,
            running=running,
            completed=totals.whole("request_success_total"),
            sampled_tokens=totals.whole("generation_tokens_total"),
            p50_sec=None if whole is None else whole.p50_sec,
            p95_sec=None if whole is None else whole.p95_sec,
            server=ServerStatus(
                state=state,
                reason=reason,
                since=self._since,
                # vLLM counts the tokens of the prompts that it looks up in its cache.
                prompt_tokens=totals.whole("prefix_cache_queries_total"),
                cached_tokens=totals.whole("prefix_cache_hits_total"),
                kv_cache_use=totals.values.get("kv_cache_usage_perc"),
                preemptions=totals.whole("num_preemptions_total"),
                latencies=latencies,
            ),
        )


def server_words(measured: PolicyMeasured | None) -> str:
    """The state of the inference server, as the end of a sentence."""
    if measured is None or measured.server is None:
        return ""
    if measured.server.state == "unreachable":
        return f"; the inference server doesn't answer ({measured.server.reason})"
    waiting = measured.in_flight - measured.running
    use = measured.server.kv_cache_use
    cache = "" if use is None else f", KV cache {use:.0%} full"
    return f"; the inference server has {measured.running} running, {waiting} waiting{cache}"


def metrics_url(url: str) -> str:
    """`/metrics` of the server that `url` is of.

    Raises:
        ServerMetricsError: it is no URL of a server.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ServerMetricsError(f"{url}: not the URL of a server; give http://host:port")
    return urlunsplit((parts.scheme, parts.netloc, "/metrics", "", ""))


def parse(text: str) -> VllmMetrics:
    """Read the text of `/metrics`, as `read_metrics` does.

    Raises:
        ServerMetricsError: it isn't Prometheus's text format, or not vLLM's numbers.
    """
    try:
        metrics = read_metrics(text)
    except ValueError as error:
        raise ServerMetricsError(f"its metrics can't be read ({error})") from error
    if not metrics.values:
        raise ServerMetricsError("its metrics are not vLLM's")
    return metrics


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SEC) as answer:
            body: bytes = answer.read(_MAX_BYTES)
    except HTTPError as error:
        raise ServerMetricsError(f"{url}: answers {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise ServerMetricsError(f"{url}: {_why(error)}") from error
    return body.decode("utf-8", "replace")


def _why(error: OSError | HTTPException) -> str:
    """The reason, without what urllib and the C library put around it."""
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        return _why(error.reason) if isinstance(error.reason, OSError) else str(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
