"""The queue pane: what each backend truly knows of itself, and the machines that compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tbtui.journal.events import (
    AnyEvent,
    GpuMeasured,
    GpuShare,
    GpusMeasured,
    PolicyMeasured,
    WorkerStarted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.server_status import LatencyStatus, ServerStatus
from tbtui.ui.app import TbtuiApp
from tbtui.ui.panes.queue import QueuePane
from tests.events import run_continued
from tests.ui.opening import app_of, pressing
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START, write_run

if TYPE_CHECKING:
    from tests.ui.opening import Opener

SECONDS = 24.0
LATENCIES = (
    LatencyStatus(kind="first_token", p50_sec=0.48, p95_sec=2.13, count=410),
    LatencyStatus(kind="inter_token", p50_sec=0.0042, p95_sec=0.031, count=88_000),
    LatencyStatus(kind="queue", p50_sec=0.35, p95_sec=1.9, count=410),
    LatencyStatus(kind="end_to_end", p50_sec=9.6, p95_sec=31.4, count=398),
)
HERE = GpusMeasured(
    host="trainer-0",
    gpus=(
        GpuMeasured(
            index=0,
            name="NVIDIA H100 80GB HBM3",
            utilisation=0.97,
            memory_used_mib=72_704,
            memory_total_mib=81_559,
            power_watt=612,
            temperature_c=64,
            processes=3,
            own_processes=2,
            shares=(
                GpuShare(role="trainer", memory_mib=30_720, utilisation=0.31),
                GpuShare(role="vLLM EngineCore", memory_mib=39_936, utilisation=0.66),
                GpuShare(role="others", memory_mib=620, utilisation=0.0),
            ),
        ),
        GpuMeasured(
            index=1,
            name="NVIDIA H100 80GB HBM3",
            utilisation=0.0,
            memory_used_mib=2_048,
            memory_total_mib=81_559,
            power_watt=74,
            temperature_c=31,
            processes=0,
            own_processes=0,
        ),
    ),
)


def vllm(
    tokens: int,
    *,
    state: str = "active",
    reason: str = "",
    latencies: tuple[LatencyStatus, ...] = LATENCIES,
) -> PolicyMeasured:
    away = state == "unreachable"
    return PolicyMeasured(
        activity="idle" if away else "sampling",
        in_flight=0 if away else 16,
        running=0 if away else 4,
        completed=398,
        sampled_tokens=tokens,
        p50_sec=latencies[-1].p50_sec if latencies else None,
        p95_sec=latencies[-1].p95_sec if latencies else None,
        server=ServerStatus(
            state=state,
            reason=reason,
            since=START + (SECONDS + 1 if away else 1.5),
            requests=(),
            retries=0,
            prompt_tokens=1_000_000,
            cached_tokens=640_000,
            kv_cache_use=None if away else 0.97,
            preemptions=2,
            latencies=latencies,
        ),
    )


def write_then(path: Path, *events: AnyEvent, policy: str = "tinker") -> RunDirectory:
    """A run in which these events come last, a second after one another."""
    run = write_run(path, SECONDS, policy=policy).run
    moments = iter(range(1, len(events) + 1))
    writer = JournalWriter(run, lambda: START + SECONDS + next(moments), continues=True)
    for event in events:
        writer.append(event)
    writer.close()
    return run


def vllm_run(path: Path) -> RunDirectory:
    return write_then(path, vllm(0), vllm(812), HERE, policy="vllm")


def unreachable_run(path: Path) -> RunDirectory:
    reason = "http://node-7:8000/metrics: Connection refused"
    gone = vllm(812, state="unreachable", reason=reason, latencies=())
    lost = GpusMeasured(
        host="node-7", gpus=(), unreachable="ssh: connect to node-7: No route to host"
    )
    return write_then(path, vllm(0), vllm(812), gone, HERE, lost, policy="vllm")


def local_run(path: Path) -> RunDirectory:
    return write_then(path, policy="local")


def tinker_run(path: Path) -> RunDirectory:
    return write_then(path, policy="tinker")


RUNS = {
    "local": local_run,
    "tinker": tinker_run,
    "vllm": vllm_run,
    "unreachable": unreachable_run,
}


@pytest.mark.parametrize(
    ("backend", "size"),
    [*((backend, (80, 24)) for backend in RUNS), ("vllm", (160, 45))],
    ids=[*RUNS, "vllm-wide"],
)
def test_the_pane_looks_as_it_did(
    snap_compare: Callable[..., bool], tmp_path: Path, backend: str, size: tuple[int, int]
) -> None:
    app = TbtuiApp(
        PastHost(RUNS[backend](tmp_path / "run")), live=False, clock=lambda: START + SECONDS + 3
    )

    assert snap_compare(
        app, terminal_size=size, run_before=pressing(("5",) if size[0] == 80 else ())
    )


async def test_an_empty_pane_says_what_will_appear(opened: Opener, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "empty")
    JournalWriter(run).close()
    async with opened((80, 24), directory=run) as pilot:
        await pilot.press("5")
        await settle(app_of(pilot))
        text = pilot.app.screen.query_one(QueuePane).text
        assert "once the policy is loaded" in text
        assert "GPUs" in text


async def rows_of(opened: Opener, run: RunDirectory) -> list[list[str]]:
    """Words of each row of the pane in full."""
    async with opened((80, 24), directory=run, clock=lambda: START + SECONDS + 3) as pilot:
        await pilot.press("5")
        await settle(app_of(pilot))
        text = pilot.app.screen.query_one(QueuePane).text
    return [line.split() for line in text.splitlines()]


async def test_a_server_that_is_away_shows_nothing_of_now(opened: Opener, tmp_path: Path) -> None:
    rows = await rows_of(opened, unreachable_run(tmp_path / "run"))
    heads = [row[0] for row in rows]
    assert rows[0][:2] == ["!", "unreachable"]
    assert not {"running", "KV", "time"} & set(heads)
    assert ["completions", "398"] in rows


async def test_sandboxes_are_counted_of_those_that_there_may_be(
    opened: Opener, tmp_path: Path
) -> None:
    continued = run_continued(settings={"n_workers": 2, "n_parallel_envs": 32})
    started = WorkerStarted(worker=0, pid=4300)
    rows = await rows_of(opened, write_then(tmp_path / "run", continued, started, policy="local"))
    assert ["workers", "1/2"] in rows
    assert ["sandboxes", "16/32"] in rows


async def test_gpus_that_can_not_be_measured_say_why(opened: Opener, tmp_path: Path) -> None:
    odd = GpusMeasured(
        host="trainer-0",
        gpus=(
            GpuMeasured(index=0, name="", problem="GPU is lost"),
            GpuMeasured(index=1, name="NVIDIA GB10\x1b[31m"),
        ),
    )
    rows = await rows_of(opened, write_then(tmp_path / "run", odd, policy="local"))
    assert ["0", "!", "GPU", "is", "lost"] in rows
    assert ["1", "GB10␛[31m", "–", "–", "–", "–"] in rows
