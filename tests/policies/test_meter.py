"""What a server's requests and states look like from outside."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from tbtui.policies.meter import LATENCIES_KEPT, RequestMeter
from tbtui.policies.work import library_log_to
from tbtui.server_status import RequestStatus


class Clock:
    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> RequestMeter:
    return RequestMeter(clock, clock)


def only(meter: RequestMeter) -> RequestStatus:
    (status,) = meter.status().requests
    return status


def test_a_request_is_in_flight_until_it_is_answered(meter: RequestMeter, clock: Clock) -> None:
    with meter.request("sample"):
        clock.now += 2
        with meter.request("sample"):
            clock.now += 1
            status = only(meter)
            assert (status.in_flight, status.oldest_sec, status.completed) == (2, 3.0, 0)
            assert meter.in_flight("sample") == 2
    status = only(meter)
    assert (status.in_flight, status.oldest_sec, status.completed) == (0, None, 2)
    assert meter.latencies("sample") == (1.0, 3.0)


def test_failures_are_counted_and_have_no_latency(meter: RequestMeter) -> None:
    with pytest.raises(ValueError, match="no"), meter.request("optim_step"):
        raise ValueError("no")
    status = only(meter)
    assert (status.completed, status.failed, status.p50_sec) == (1, 1, None)


async def test_what_we_cancel_ourselves_is_no_failure(meter: RequestMeter) -> None:
    async def ask() -> None:
        with meter.request("sample"):
            await asyncio.Event().wait()

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    status = only(meter)
    assert (status.in_flight, status.completed, status.failed) == (0, 0, 0)


def test_percentiles_are_of_the_last_requests(meter: RequestMeter, clock: Clock) -> None:
    for seconds in [1000.0] * 10 + [1.0] * (LATENCIES_KEPT - 20) + [5.0] * 20:
        with meter.request("forward"):
            clock.now += seconds
    status = only(meter)
    assert status.completed == LATENCIES_KEPT + 10
    assert (status.p50_sec, status.p95_sec) == (1.0, 5.0)


def test_a_state_lasts_from_its_first_report(meter: RequestMeter, clock: Clock) -> None:
    assert (meter.status().state, meter.status().since) == ("unknown", 100.0)
    with meter.request("sample"):
        clock.now = 110
        meter.state("paused_capacity", "full", "sampling")
        clock.now = 150
        meter.state("paused_capacity", "still full", "sampling")
        status = meter.status()
        assert (status.state, status.reason, status.since) == (
            "paused_capacity",
            "still full",
            110.0,
        )
        meter.state("active", "", "sampling")
    assert (meter.status().state, meter.status().since) == ("active", 150.0)


def test_the_worst_of_what_is_said_now_is_shown(meter: RequestMeter) -> None:
    with meter.request("sample"), meter.request("forward_backward"):
        meter.state("active", "", "training")
        assert meter.status().state == "active"
        meter.state("unknown", "not told", "creation")
        assert meter.status().state == "unknown"
        meter.state("paused_rate_limit", "slowly", "sampling")
        meter.state("paused_capacity", "full", "training")
        assert meter.status().reason == "full"
        meter.state("unreachable", "refused", "connection")
        assert meter.status().state == "unreachable"
        meter.withdraw("connection")
        assert meter.status().state == "paused_capacity"


def test_nobody_waits_in_a_queue_whose_requests_are_gone(meter: RequestMeter) -> None:
    meter.state("active", "", "training")
    with pytest.raises(ValueError, match="gone"), meter.request("sample"):
        meter.state("paused_capacity", "full", "sampling")
        raise ValueError("gone")
    assert meter.status().state == "active"


def test_an_answer_says_that_the_server_is_there_and_paid(meter: RequestMeter) -> None:
    with meter.request("sample"):
        meter.state("unreachable", "refused", "connection")
        meter.state("paused_billing", "no money", "billing")
        meter.state("active", "", "sampling")
    assert meter.status().state == "active"


def test_threads_may_count_at_once(meter: RequestMeter) -> None:
    def work() -> None:
        for _ in range(500):
            with meter.request("sample"):
                meter.retried()
                meter.answered(10, 4)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = meter.status()
    assert (only(meter).completed, only(meter).in_flight) == (4000, 0)
    assert (status.retries, status.prompt_tokens, status.cached_tokens) == (4000, 40_000, 16_000)


def test_a_library_that_is_imported_meanwhile_logs_nowhere_else(tmp_path: Path) -> None:
    """In a process of its own: huggingface_hub makes its handler when it is first imported."""
    script = (
        "import sys\n"
        "from tbtui.policies.work import library_log_to\n"
        "with open(sys.argv[1], 'ab') as file, library_log_to(file):\n"
        "    from huggingface_hub.utils import logging\n"
        "    log = logging.get_logger('huggingface_hub.utils._http')\n"
        "    log.warning('Retrying in 1s [Retry 1/5].')\n"
    )
    path = tmp_path / "policy.log"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert "Retrying in 1s" in path.read_text()


def test_what_the_sdk_logs_goes_to_the_log_and_nowhere_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.log"
    with path.open("ab") as file, library_log_to(file):
        logging.getLogger("tinker.lib.api_future_impl").warning("try again with tml-abc123.x")
        logging.getLogger("httpx").info("every request")
        logging.getLogger("transformers.tokenization").warning("a long prompt")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("deprecated", stacklevel=1)
        file.write(b"still open\n")
    text = path.read_text()
    assert "WARNING tinker.lib.api_future_impl: try again with [key]" in text
    assert "a long prompt" in text
    assert "deprecated" in text
    assert "every request" not in text
    assert "still open" in text
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("tinker").propagate
