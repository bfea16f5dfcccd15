"""vLLM's `/metrics`, from a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tbtui.engines.prime_rl.watch.run import WatchOptions, prepare_watch, watch
from tbtui.engines.prime_rl.watch.server import ServerMetrics, ServerMetricsError, metrics_url
from tbtui.journal.events import PolicyMeasured
from tbtui.journal.reader import JournalReader

from .recorded_run import RecordedRun

# As vLLM 0.32 writes it: two engines behind one port, and a histogram.
EXPOSED = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="policy"} 3.0
vllm:num_requests_running{engine="1",model_name="policy"} 1.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="policy"} 12.0
vllm:num_requests_waiting{engine="1",model_name="policy"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="policy"} 0.97
vllm:kv_cache_usage_perc{engine="1",model_name="policy"} 0.2
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="policy"} 1000.0
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="policy"} 640.0
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="policy"} 2.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="policy"} 4096.0
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="policy"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="policy"} 1.0
# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency in seconds.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0",model_name="policy"} 4.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="policy"} 8.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="policy"} 8.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="policy"} 20.0
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 5.0
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/metrics":
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        assert isinstance(self.server, Server)
        self.wfile.write((self.server.exposed + self.server.histograms).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Server(HTTPServer):
    exposed = EXPOSED
    histograms = ""
    """What it measures beside, as it stands."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url(server: Server) -> str:
    return server.url


def test_the_queue_and_the_cache_of_all_engines(url: str) -> None:
    measured = ServerMetrics([url], clock=lambda: 100.0).measure()
    assert (measured.running, measured.in_flight, measured.completed) == (4, 16, 8)
    assert measured.sampled_tokens == 4096
    server = measured.server
    assert server is not None
    assert (server.state, server.since) == ("active", 100.0)
    assert (server.prompt_tokens, server.cached_tokens) == (1000, 640)
    assert (server.kv_cache_use, server.preemptions) == (0.97, 2)


def test_several_servers_are_added_up(url: str) -> None:
    measured = ServerMetrics([url, url]).measure()
    assert (measured.running, measured.in_flight, measured.sampled_tokens) == (8, 32, 8192)
    assert measured.server is not None
    assert measured.server.kv_cache_use == 0.97


def test_how_long_a_request_takes_is_the_policys_latency(server: Server) -> None:
    metrics = ServerMetrics([server.url])
    name = "vllm:e2e_request_latency_seconds"
    # It is in the text already, with what was counted before.
    assert metrics.measure().p50_sec is None
    server.histograms = (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{engine="1",le="1.0"}} 10\n{name}_bucket{{engine="1",le="+Inf"}} 10\n'
    )
    measured = metrics.measure()
    assert (measured.p50_sec, measured.p95_sec) == (0.5, 0.95)


def test_a_server_that_does_not_answer_is_told_since_when() -> None:
    times = iter([100.0, 200.0])
    with socket.socket() as held:
        # Taken, so that nobody else can listen there.
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        metrics = ServerMetrics([address], clock=lambda: next(times))
        first, second = metrics.measure().server, metrics.measure().server
    assert first is not None
    assert second is not None
    assert (second.state, second.since) == ("unreachable", 100.0)
    assert second.reason == f"http://{address}/metrics: Connection refused"


def test_something_else_that_answers_is_told(server: Server) -> None:
    metrics = ServerMetrics([server.url])
    for answer, reason in (
        (f"{EXPOSED}vllm:num_requests_running {{\n", "its metrics can't be read"),
        ("<html>\n", "its metrics are not vLLM's"),
        ("# TYPE other gauge\nother 1.0\n", "its metrics are not vLLM's"),
    ):
        server.exposed = answer
        measured = metrics.measure().server
        assert measured is not None
        assert measured.state == "unreachable"
        assert reason in measured.reason


@pytest.mark.parametrize("bad", ["ftp://host", "http://", ""])
def test_what_is_no_server_is_refused(bad: str) -> None:
    with pytest.raises(ServerMetricsError, match="not the URL of a server"):
        metrics_url(bad)


async def test_what_the_server_says_is_journalled(url: str, tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "tb")
    run.whole()
    options = WatchOptions(once=True, server_urls=(url,))
    prepared = prepare_watch(run.path, tmp_path / "journal", options)
    await watch(prepared)
    entries = JournalReader(prepared.directory).read_kinds(("policy_measured",), 0)
    (measured,) = [entry.event for entry in entries]
    assert isinstance(measured, PolicyMeasured)
    assert measured.server is not None
    assert measured.server.kv_cache_use == 0.97
