"""What is journalled of the policy's queue, and what is not worth a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tbtui.engines import monitor as monitor_module
from tbtui.engines.monitor import Monitor
from tbtui.journal.events import PolicyMeasured
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import PolicyStatus
from tbtui.server_status import LatencyStatus, RequestStatus, ServerStatus

REQUESTS = RequestStatus("sample", 2, 5.0, 10, 1, 0.5, 0.9)
LATENCIES = (LatencyStatus("queue", 0.1, 0.2, 9),)
SERVER = ServerStatus("active", "", 1000.0, (REQUESTS,), 3, 100, 40, 0.4, 2, LATENCIES)
STATUS = PolicyStatus(2, 0, 10, 500, (0.5, 0.9), "sampling", server=SERVER)


def with_requests(status: PolicyStatus, **changes: Any) -> PolicyStatus:
    assert status.server is not None
    requests = (replace(status.server.requests[0], **changes),)
    return replace(status, server=replace(status.server, requests=requests))


class Looks:
    """A monitor that measures a policy on demand, with a clock that the test moves."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 50.0
        self.status = STATUS
        self.directory = RunDirectory.create(path)
        self.journal = JournalWriter(self.directory)
        self.monitor = Monitor(self.journal, lambda: self.status, lambda: ())
        monkeypatch.setattr(monitor_module.time, "monotonic", lambda: self.now)

    def look(self, after: float, status: PolicyStatus) -> int:
        """Rows of the journal once the status has been measured so much later."""
        self.now += after
        self.status = status
        self.monitor._measure_policy()
        reader = JournalReader(self.directory)
        entries = reader.read(0)
        reader.close()
        return len(entries)


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(tmp_path / "run", monkeypatch)


def test_all_that_is_known_of_the_server_is_journalled(looks: Looks) -> None:
    looks.look(0, STATUS)
    event = JournalReader(looks.directory).read(0)[0].event
    assert isinstance(event, PolicyMeasured)
    assert event.server is not None
    assert event.server == SERVER


def test_a_request_that_only_grows_older_is_no_news(looks: Looks) -> None:
    assert looks.look(0, STATUS) == 1
    assert looks.look(1.0, with_requests(STATUS, oldest_sec=6.02)) == 1
    assert looks.look(60.0, with_requests(STATUS, oldest_sec=66.1)) == 1


@pytest.mark.parametrize(
    "changed",
    [
        with_requests(STATUS, oldest_sec=0.4),
        with_requests(STATUS, oldest_sec=None, in_flight=0),
        with_requests(STATUS, oldest_sec=6.0, completed=11),
        replace(STATUS, server=replace(SERVER, state="paused_capacity", reason="full")),
        replace(STATUS, server=replace(SERVER, retries=4)),
        replace(STATUS, server=replace(SERVER, preemptions=3)),
        replace(STATUS, server=None),
        replace(STATUS, sampled_tokens=501),
    ],
)
def test_anything_else_is_news(looks: Looks, changed: PolicyStatus) -> None:
    assert looks.look(0, STATUS) == 1
    assert looks.look(1.0, changed) == 2
