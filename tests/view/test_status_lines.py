"""What a console tells of GPUs and of vLLM's cache, and what not again and again."""

from __future__ import annotations

import json
from pathlib import Path

from tbtui.console import HumanLines
from tbtui.journal.events import AnyEvent, GpuMeasured, GpusMeasured, PolicyMeasured, decode, encode
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.server_status import ServerStatus
from tbtui.view.fold import Fold

from .story import entries

BUSY = GpuMeasured(index=0, name="NVIDIA H100 80GB HBM3", utilisation=0.97)
IDLE = GpuMeasured(index=1, name="NVIDIA H100 80GB HBM3", utilisation=0.0)
LOST = GpuMeasured(index=1, name="", problem="GPU is lost")


def told(*events: AnyEvent) -> list[str]:
    lines = HumanLines()
    return [line for entry in entries(list(events)) for line in lines.lines(entry)]


def gpus(*each: GpuMeasured, unreachable: str = "") -> GpusMeasured:
    return GpusMeasured(host="node-1", gpus=each, unreachable=unreachable)


def test_a_machine_is_told_of_once_and_when_something_happens_to_it() -> None:
    assert told(
        gpus(BUSY, IDLE),
        gpus(IDLE, BUSY),
        gpus(BUSY, LOST),
        gpus(unreachable="no route"),
        gpus(unreachable="no route"),
        gpus(BUSY, IDLE),
    ) == [
        "gpus    node-1: 2 x NVIDIA H100 80GB HBM3",
        "gpus    node-1: 1 x NVIDIA H100 80GB HBM3, GPU 1: GPU is lost",
        "gpus    node-1: no GPUs to be seen (no route)",
        "gpus    node-1: 2 x NVIDIA H100 80GB HBM3",
    ]


def preempted(count: int | None) -> PolicyMeasured:
    server = ServerStatus(
        **{"state": "active", "reason": "", "since": 0.0, "requests": (), "retries": 0},
        **{"prompt_tokens": 0, "cached_tokens": 0},
        kv_cache_use=0.99,
        preemptions=count,
    )
    return PolicyMeasured(
        **{"activity": "sampling", "in_flight": 0, "running": 0, "completed": 0},
        **{"sampled_tokens": 0, "p50_sec": None, "p95_sec": None},
        server=server,
    )


def test_preemptions_are_told_of_less_and_less_often() -> None:
    """What came before the run is not of the run, and a server that starts again counts anew."""
    counts = [40, 40, 41, 41, 42, 43, 44, 45, 46, 48, 3, 4, None]
    assert told(*map(preempted, counts)) == [
        "policy  its KV cache is full: 1 request preempted so far, to be computed again",
        "policy  its KV cache is full: 2 requests preempted so far, to be computed again",
        "policy  its KV cache is full: 4 requests preempted so far, to be computed again",
        "policy  its KV cache is full: 8 requests preempted so far, to be computed again",
        "policy  its KV cache is full: 1 request preempted so far, to be computed again",
    ]


def test_gpus_come_back_from_the_journal_by_machine(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    journal = JournalWriter(directory)
    away = GpusMeasured(host="node-2", gpus=(), unreachable="no route")
    for event in (gpus(BUSY), away, gpus(IDLE)):
        journal.append(event)
    journal.close()
    fold = Fold()
    fold.apply_all(JournalReader(directory).read(0))
    assert fold.state.gpus == {"node-1": gpus(IDLE), "node-2": away}


def test_an_older_measurement_of_a_server_can_be_read() -> None:
    old = json.loads(encode(preempted(None)))
    for name in ("kv_cache_use", "preemptions", "latencies"):
        del old["server"][name]
    measured = decode("policy_measured", json.dumps(old))
    assert isinstance(measured, PolicyMeasured)
    server = measured.server
    assert server is not None
    assert (server.kv_cache_use, server.preemptions, server.latencies) == (None, None, ())
