"""What a vLLM server counts of itself, from its `/metrics`."""

from __future__ import annotations


def vllm_metrics(text: str) -> dict[str, float]:
    """Gauges and counters by name, without `vllm:`, added up over the server's engines; the use of
    the KV cache is the fullest engine's.

    Raises:
        ValueError: it isn't Prometheus' text format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("vllm:") or family.type == "histogram":
            continue
        for sample in family.samples:
            name = sample.name.removeprefix("vllm:")
            found[name] = added(name, found.get(name, 0.0), sample.value)
    return found


def added(name: str, before: float, value: float) -> float:
    """A metric of several engines."""
    return max(before, value) if name == "kv_cache_usage_perc" else before + value


def requests_running(text: str) -> int | None:
    """Requests being computed at the moment; None: the server doesn't tell."""
    try:
        running = vllm_metrics(text).get("num_requests_running")
    except ValueError:  # something else answers there
        return None
    return None if running is None else int(running)
