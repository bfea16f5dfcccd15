"""vLLM's own count of the requests that it computes, from `/metrics`."""

from __future__ import annotations

_RUNNING = "vllm:num_requests_running"


def requests_running(metrics: str) -> int | None:
    """Requests being computed at the moment, by all engines of the server; None: it doesn't tell.

    `metrics`: in Prometheus' text format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(metrics))
    except ValueError:  # something else answers there
        return None
    counts = [each.value for family in families for each in family.samples if each.name == _RUNNING]
    return int(sum(counts)) if counts else None
