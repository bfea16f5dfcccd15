"""The queue pane: what each backend truly knows of itself, the machines, what a server costs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.app import App
from textual.pilot import Pilot

from tbtui.console.lines import HumanLines
from tbtui.journal.events import (
    AnyEvent,
    GpuMeasured,
    GpuShare,
    GpusMeasured,
    PolicyMeasured,
    StepFinished,
    WorkerStarted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.server_status import LatencyStatus
from tbtui.ui.panes.bars import StatusLine, Summary
from tbtui.ui.panes.pane import Pane
from tbtui.ui.panes.queue import QueuePane
from tbtui.ui.panes.turns import TurnPane
from tests.events import entries_of, policy_measured, run_continued, server_status
from tests.ui.opening import Opener, app_of, press, replaying, window, write_on
from tests.ui.picture import settle
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START, write_run

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
    server = server_status(
        state=state,
        reason=reason,
        since=START + (SECONDS + 1 if away else 1.5),
        prompt_tokens=1_000_000,
        cached_tokens=640_000,
        kv_cache_use=None if away else 0.97,
        preemptions=2,
        latencies=latencies,
    )
    return policy_measured(
        activity="idle" if away else "sampling",
        in_flight=0 if away else 16,
        running=0 if away else 4,
        completed=398,
        sampled_tokens=tokens,
        p50_sec=latencies[-1].p50_sec if latencies else None,
        p95_sec=latencies[-1].p95_sec if latencies else None,
        server=server,
    )


def write_then(path: Path, *events: AnyEvent, policy: str = "tinker") -> RunDirectory:
    """A run in which these events come last, a second after one another."""
    run = write_run(path, SECONDS, policy=policy).run
    write_on(run, SECONDS, *events)
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


@pytest.mark.parametrize(
    ("write", "size"),
    [(vllm_run, (80, 24)), (vllm_run, (160, 45)), (unreachable_run, (80, 24))],
    ids=["vllm", "vllm-wide", "unreachable"],
)
async def test_the_pane_looks_as_it_did(
    opened: Opener,
    tmp_path: Path,
    write: Callable[[Path], RunDirectory],
    size: tuple[int, int],
    snapshot: SnapshotAssertion,
) -> None:
    run = write(tmp_path / "run")
    async with opened(size, directory=run, clock=lambda: START + SECONDS + 3) as pilot:
        await press(pilot, *("5",) * (size[0] == 80))
        assert styled_text(pilot.app) == snapshot(extension_class=StyledTextExtension)


async def test_an_empty_pane_says_what_will_appear(opened: Opener, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "empty")
    JournalWriter(run).close()
    async with opened((80, 24), directory=run) as pilot:
        await press(pilot, "5")
        text = pilot.app.screen.query_one(QueuePane).text
        assert "once the policy is loaded" in text
        assert "GPUs" in text


def queue_rows(pilot: Pilot[int]) -> list[list[str]]:
    """Words of each row of the queue."""
    return [line.split() for line in pilot.app.screen.query_one(QueuePane).text.splitlines()]


async def rows_of(opened: Opener, run: RunDirectory) -> list[list[str]]:
    """The same of the pane in full."""
    async with opened((80, 24), directory=run, clock=lambda: START + SECONDS + 3) as pilot:
        await press(pilot, "5")
        return queue_rows(pilot)


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


async def test_a_pause_has_a_glyph_a_word_a_reason_and_a_growing_age(
    opened: Opener, served_run: RunDirectory
) -> None:
    now = START + 39.0
    async with opened(directory=served_run, clock=lambda: now) as pilot:
        text = pilot.app.screen.query_one(QueuePane).text
        first, *rest = text.splitlines()
        assert first.split() == ["‖", "paused:", "no", "capacity", "0:11"]
        assert rest[0].split() == ["Qwen/Qwen3-8B:", "all", "sampler"]
        assert "prompts cached" in text
        assert "waiting for the server, paused: no capacity (11s)" in _line(pilot.app, StatusLine)
        now += 10.0
        await settle(app_of(pilot))
        assert "0:21" in pilot.app.screen.query_one(QueuePane).text.splitlines()[0]
        assert "(21s)" in _line(pilot.app, StatusLine)


async def test_what_has_been_spent_is_told_and_no_tokens_come_from_a_server_that_stands_still(
    opened: Opener, served_run: RunDirectory
) -> None:
    async with opened(directory=served_run, clock=lambda: START + 80.0) as pilot:
        rows = queue_rows(pilot)
        assert ["sampling", "0", "tokens/s"] in rows
        assert ["prompt", "tokens", "412k"] in rows
        assert ["sampled", "tokens", "18k"] in rows
        assert next(row for row in rows if row[:1] == ["spent"])[1] == "$0.063"


async def test_a_cost_that_nobody_can_tell_is_said_to_be_unknown(
    opened: Opener, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "unpriced", 80.0, policy="tinker").run
    with sqlite3.connect(run.database) as db:
        for seq, body in db.execute("SELECT seq, body FROM events").fetchall():
            event = json.loads(body)
            if metrics := event.get("metrics"):
                event["metrics"] = {n: v for n, v in metrics.items() if not n.startswith("cost/")}
                db.execute("UPDATE events SET body = ? WHERE seq = ?", (json.dumps(event), seq))
    db.close()
    async with opened(directory=run, clock=lambda: START + 80.0) as pilot:
        rows = queue_rows(pilot)
        assert ["cost", "unknown:", "no", "prices"] in rows
        assert not any(row[:1] == ["spent"] for row in rows)


async def test_an_active_server_is_told_in_a_small_window(opened: Opener, tmp_path: Path) -> None:
    run = write_run(tmp_path / "active", 24.0, policy="tinker").run
    async with opened((80, 24), directory=run, clock=lambda: START + 24.0) as pilot:
        assert "● active" in _line(pilot.app, Summary)
        assert "in flight" in _line(pilot.app, Summary)
        await press(pilot, "5")
        text = pilot.app.screen.query_one(QueuePane).text
        assert "forward_backward" in text


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_a_lost_policy_is_seen(opened: Opener, tmp_path: Path, size: tuple[int, int]) -> None:
    run = write_run(tmp_path / "lost", 38.0, policy="tinker", policy_lost_at=33.0).run
    async with opened(size, directory=run, clock=lambda: START + 38.0) as pilot:
        status = _line(pilot.app, StatusLine)
        assert "the lost policy; a new one in 25s" in status
        if size[0] == 80:
            assert "! policy lost" in _line(pilot.app, Summary)
        else:
            text = pilot.app.screen.query_one(QueuePane).text
            assert "! policy lost" in text
            assert "… a new one in 25s" in text


async def test_thinking_is_folded_and_can_be_opened(
    opened: Opener, served_run: RunDirectory
) -> None:
    async with opened(directory=served_run, clock=lambda: START + 39.0) as pilot:
        await press(pilot, "right", "right", "enter")
        turns = pilot.app.screen.query_one(TurnPane)
        assert "┊ … 4 more rows of thinking  o opens" in turns.text
        assert "Good." not in turns.text
        assert turns.text.index("let me look") < turns.text.index("declares the task complete")
        await press(pilot, "o")
        assert "┊ Good." in turns.text
        assert "more rows of thinking" not in turns.text
        assert "67% cached" in turns.text


def _line(app: App[Any], pane: type[Pane]) -> str:
    return app.screen.query_one(pane).text


async def test_there_is_one_forecast_of_the_time_left(opened: Opener, tmp_path: Path) -> None:
    """The header's, the queue's, and in a replay what it was at that time; a step's line in the
    console has it as of that line."""
    run = write_run(tmp_path / "run", 80.0, policy="tinker", eval_every=4).run
    entries, lines = entries_of(run), HumanLines().lines
    (*_, last) = [entry for entry in entries if isinstance(entry.event, StepFinished)]
    (line,) = [line for entry in entries for line in lines(entry) if entry.seq == last.seq]
    said = line.rpartition(" · ")[2].removesuffix(" left")
    app, recorded = replaying(run)
    recorded.playback.go_to(last.time)
    then = write_run(tmp_path / "then", last.time - START, policy="tinker", eval_every=4).run
    for showing in (opened((160, 45), directory=then, clock=lambda: last.time), window(app)):
        async with showing as pilot:
            assert f"· {said} left" in _line(pilot.app, StatusLine)
            assert ["time", "left", said] in queue_rows(pilot)
