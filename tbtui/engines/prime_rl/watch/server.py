"""vLLM's own numbers, from its `/metrics`: its queue, its cache and what it has drawn."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from urllib.parse import urlsplit, urlunsplit

from tbtui.journal.events import PolicyMeasured, ServerMeasured
from tbtui.policies.vllm.metrics import added, vllm_metrics

_TIMEOUT_SEC = 5.0
_MAX_BYTES = 16 << 20


class ServerMetricsError(Exception):
    """The numbers can't be read; the message is one line for a person."""


class ServerMetrics:
    """Asks one or several engines and adds up what they say."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        """`urls`: of the servers, with or without a path (`http://host:8000/v1` is one)."""
        self._urls = tuple(metrics_url(url) for url in urls)
        self._clock = clock
        self._state = ""
        self._since = 0.0
        self._counted: dict[str, float] = {}
        """As it was told last: what was counted stays counted while a server is away."""

    def measure(self) -> PolicyMeasured:
        """Blocks for at most some seconds; a server that doesn't answer is told as such."""
        try:
            totals = _sum([parse(_fetch(url)) for url in self._urls])
        except ServerMetricsError as error:
            return self._measured(self._counted, "unreachable", str(error))
        self._counted = {name: n for name, n in totals.items() if name.endswith("_total")}
        return self._measured(totals, "active", "")

    def _measured(self, totals: dict[str, float], state: str, reason: str) -> PolicyMeasured:
        if state != self._state:
            self._state, self._since = state, self._clock()
        running, waiting = (
            _whole(totals, "num_requests_running"),
            _whole(totals, "num_requests_waiting"),
        )
        return PolicyMeasured(
            activity="sampling" if running else "idle",
            in_flight=running + waiting,
            running=running,
            completed=_whole(totals, "request_success_total"),
            sampled_tokens=_whole(totals, "generation_tokens_total"),
            p50_sec=None,
            p95_sec=None,
            server=ServerMeasured(
                state=state,
                reason=reason,
                since=self._since,
                requests=(),
                retries=0,
                # vLLM counts the tokens of the prompts that it looks up in its cache.
                prompt_tokens=_whole(totals, "prefix_cache_queries_total"),
                cached_tokens=_whole(totals, "prefix_cache_hits_total"),
                kv_cache_use=totals.get("kv_cache_usage_perc"),
                preemptions=_whole(totals, "num_preemptions_total"),
            ),
        )


def metrics_url(url: str) -> str:
    """`/metrics` of the server that `url` is of.

    Raises:
        ServerMetricsError: it is no URL of a server.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ServerMetricsError(f"{url}: not the URL of a server; give http://host:port")
    return urlunsplit((parts.scheme, parts.netloc, "/metrics", "", ""))


def parse(text: str) -> dict[str, float]:
    """As `vllm_metrics`.

    Raises:
        ServerMetricsError: it isn't Prometheus's text format.
    """
    try:
        return vllm_metrics(text)
    except ValueError as error:
        raise ServerMetricsError(f"its metrics can't be read ({error})") from error


def _sum(engines: Sequence[dict[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for engine in engines:
        for name, value in engine.items():
            totals[name] = added(name, totals.get(name, 0.0), value)
    return totals


def _whole(totals: dict[str, float], name: str) -> int:
    return int(totals.get(name, 0.0))


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SEC) as answer:
            body: bytes = answer.read(_MAX_BYTES)
    except (OSError, HTTPException) as error:
        raise ServerMetricsError(f"{url}: {error}") from error
    return body.decode("utf-8", "replace")
