"""Measures the run while it runs: the policy's queue, and what each process uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import psutil

from tbtui.awake import AwakeLoop
from tbtui.journal.events import (
    OutageBegan,
    OutageEnded,
    PolicyMeasured,
    ProcessMeasured,
    ResourcesMeasured,
)
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import PolicyStatus

PERIOD_SEC = 1.0
_LAG_PROBE_SEC = 0.05
_SAME_REQUEST_SEC = 1.0
"""By how much the start of one and the same request may seem to move between two looks."""
VLLM = "vLLM"
"""Role of a vLLM server, which computes in processes that it starts."""
_VLLM_TITLE = "VLLM::"
"""What vLLM calls its processes begins with it: `VLLM::EngineCore`, `VLLM::Worker_TP0`."""

type Roots = Sequence[tuple[str, int]]
"""Role and id of the processes that the run has started itself."""


def with_children(roots: Roots) -> Iterator[tuple[str, psutil.Process]]:
    """The processes that are still there, with their roles; a vLLM server's with its children,
    under the names that it gives them."""
    for role, pid in roots:
        try:
            process = psutil.Process(pid)
            yield role, process
            if role == VLLM:
                for child in process.children(recursive=True):
                    yield _vllm_role(child), child
        except psutil.NoSuchProcess:
            pass  # it died between the asking and the looking; its owner says so


def _vllm_role(process: psutil.Process) -> str:
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:
        title = ""
    name = title.partition(_VLLM_TITLE)[2].split()[:1] if title.startswith(_VLLM_TITLE) else []
    return " ".join((VLLM, *name))


class Monitor:
    """Journals a measurement a second until it is cancelled."""

    def __init__(
        self,
        journal: JournalWriter,
        policy_status: Callable[[], PolicyStatus],
        processes: Callable[[], Roots],
    ) -> None:
        self._journal = journal
        self._policy_status = policy_status
        self._processes = processes
        self._known: dict[int, psutil.Process] = {}
        self._last_policy: tuple[float, PolicyMeasured] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        clock = loop.clock if isinstance(loop, AwakeLoop) else None
        asleep = clock.asleep() if clock is not None else 0.0
        while True:
            lag = await self._worst_lag()
            if clock is not None and (now := clock.asleep()) > asleep:
                self._report_sleep(now - asleep)
                asleep = now
            self._measure_policy()
            self._measure_processes(lag)

    def _report_sleep(self, seconds: float) -> None:
        text = f"nothing ran for {seconds:.0f} s: the machine was asleep, or this process stopped"
        remedy = "no trial is charged for that time; nothing to do"
        self._journal.append(OutageBegan(what="sleep", text=text, remedy=remedy))
        self._journal.append(OutageEnded(what="sleep", seconds=seconds))

    async def _worst_lag(self) -> float:
        """Worst delay of the event loop, in seconds, over one period."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PERIOD_SEC
        worst = 0.0
        while (before := loop.time()) < end:
            await asyncio.sleep(_LAG_PROBE_SEC)
            worst = max(worst, loop.time() - before - _LAG_PROBE_SEC)
        return worst

    def _measure_policy(self) -> None:
        now, measured = time.monotonic(), policy_measured(self._policy_status())
        if self._last_policy is None or not _says_nothing_new(
            self._last_policy[1], measured, now - self._last_policy[0]
        ):
            self._journal.append(measured)
            self._last_policy = now, measured

    def _measure_processes(self, lag: float) -> None:
        measured: dict[str, ProcessMeasured] = {}
        for role, found in with_children(self._processes()):
            try:
                process = self._known.setdefault(found.pid, found)
                own = ProcessMeasured(
                    role=role,
                    pid=process.pid,
                    rss_mb=process.memory_info().rss / 1e6,
                    cpu=process.cpu_percent() / 100,
                )
            except psutil.NoSuchProcess:
                self._known.pop(found.pid, None)
                continue
            measured[role] = _together(measured[role], own) if role in measured else own
        self._journal.append(
            ResourcesMeasured(processes=tuple(measured.values()), engine_lag_ms=lag * 1000)
        )


def _together(one: ProcessMeasured, other: ProcessMeasured) -> ProcessMeasured:
    """Two processes of one role, under the id of the first."""
    return msgspec.structs.replace(one, rss_mb=one.rss_mb + other.rss_mb, cpu=one.cpu + other.cpu)


def policy_measured(status: PolicyStatus) -> PolicyMeasured:
    latencies = status.latencies
    return PolicyMeasured(
        activity=status.activity,
        in_flight=status.in_flight,
        running=status.running,
        completed=status.completed,
        sampled_tokens=status.sampled_tokens,
        p50_sec=float(np.percentile(latencies, 50)) if latencies else None,
        p95_sec=float(np.percentile(latencies, 95)) if latencies else None,
        server=status.server,
    )


def _says_nothing_new(before: PolicyMeasured, after: PolicyMeasured, elapsed: float) -> bool:
    """Whether nothing happened in `elapsed` seconds but that requests under way grew older: a
    reader of the first knows that by itself."""
    if _without_ages(before) != _without_ages(after):
        return False
    if before.server is None or after.server is None:
        return True
    return all(
        _grew(old.oldest_sec, new.oldest_sec, elapsed)
        for old, new in zip(before.server.requests, after.server.requests, strict=True)
    )


def _without_ages(measured: PolicyMeasured) -> PolicyMeasured:
    if measured.server is None:
        return measured
    requests = tuple(replace(each, oldest_sec=None) for each in measured.server.requests)
    return msgspec.structs.replace(measured, server=replace(measured.server, requests=requests))


def _grew(before: float | None, after: float | None, elapsed: float) -> bool:
    if before is None or after is None:
        return before is after
    return abs(after - before - elapsed) < _SAME_REQUEST_SEC
