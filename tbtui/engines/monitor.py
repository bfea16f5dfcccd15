"""Measures the run while it runs: the policy's queue, and what each process uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import psutil

from tbtui.journal.events import PolicyMeasured, ProcessMeasured, ResourcesMeasured
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import PolicyStatus

PERIOD_SEC = 1.0
_LAG_PROBE_SEC = 0.05


class Monitor:
    """Journals a measurement a second until it is cancelled."""

    def __init__(
        self,
        journal: JournalWriter,
        policy_status: Callable[[], PolicyStatus],
        processes: Callable[[], Sequence[tuple[str, int]]],
    ) -> None:
        self._journal = journal
        self._policy_status = policy_status
        self._processes = processes
        self._known: dict[int, psutil.Process] = {}
        self._last_policy: PolicyMeasured | None = None

    async def run(self) -> None:
        while True:
            lag = await self._worst_lag()
            self._measure_policy()
            self._measure_processes(lag)

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
        status = self._policy_status()
        latencies = status.latencies
        measured = PolicyMeasured(
            activity=status.activity,
            in_flight=status.in_flight,
            running=status.running,
            completed=status.completed,
            sampled_tokens=status.sampled_tokens,
            p50_sec=float(np.percentile(latencies, 50)) if latencies else None,
            p95_sec=float(np.percentile(latencies, 95)) if latencies else None,
        )
        if measured != self._last_policy:
            self._journal.append(measured)
            self._last_policy = measured

    def _measure_processes(self, lag: float) -> None:
        measured = []
        for role, pid in self._processes():
            try:
                process = self._known.setdefault(pid, psutil.Process(pid))
                measured.append(
                    ProcessMeasured(
                        role=role,
                        pid=pid,
                        rss_mb=process.memory_info().rss / 1e6,
                        cpu=process.cpu_percent() / 100,
                    )
                )
            except psutil.NoSuchProcess:
                # It died between the asking and the looking; its owner tells.
                self._known.pop(pid, None)
        self._journal.append(ResourcesMeasured(processes=tuple(measured), engine_lag_ms=lag * 1000))
