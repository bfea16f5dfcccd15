"""Journals what the GPUs of this machine and of others do, while somebody trains on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from tbtui.engines.gpus.nvidia_smi import remote_gpus
from tbtui.engines.gpus.nvml import local_gpus
from tbtui.journal.events import AnyEvent, GpusMeasured
from tbtui.policies.threads import in_daemon_thread

PERIOD_SEC = 5.0
REMOTE_PERIOD_SEC = 15.0
"""A login each time."""


class GpuMonitor:
    """Looks every few seconds until it is cancelled; without a GPU here and a host to ask, once."""

    def __init__(
        self,
        append: Callable[[AnyEvent], object],
        hosts: Sequence[str] = (),
        *,
        period_sec: float = PERIOD_SEC,
        remote_period_sec: float = REMOTE_PERIOD_SEC,
    ) -> None:
        """
        Args:
            append: takes an event where GPUs have changed; called on the event loop.
            hosts: other machines, as `ssh` knows them.
        """
        self._append = append
        self._here = socket.gethostname()
        self._hosts = tuple(host for host in dict.fromkeys(hosts) if host != self._here)
        self._period = period_sec
        self._remote_period = remote_period_sec
        self._last: dict[str, GpusMeasured] = {}

    async def run(self) -> None:
        """Raises what `append` does."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_here())
                for host in self._hosts:
                    group.create_task(self._watch(host))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _watch_here(self) -> None:
        seen = False
        while True:
            found = await in_daemon_thread(local_gpus, "nvml")
            if not found.gpus and not seen:
                return  # which `tbtui doctor` explains
            seen = True
            self._tell(GpusMeasured(host=self._here, gpus=found.gpus, unreachable=found.problem))
            await asyncio.sleep(self._period)

    async def _watch(self, host: str) -> None:
        while True:
            self._tell(await remote_gpus(host))
            await asyncio.sleep(self._remote_period)

    def _tell(self, measured: GpusMeasured) -> None:
        if self._last.get(measured.host) != measured:
            self._last[measured.host] = measured
            self._append(measured)
