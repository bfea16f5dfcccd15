"""Looks at what a vLLM server counts itself, as long as there are requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time

from tbtui.policies.base import PolicyError, PolicyRefusedError
from tbtui.policies.meter import RequestMeter
from tbtui.policies.vllm.connection import Connection
from tbtui.policies.vllm.metrics import InferenceStatus, InferenceWindow, read_metrics
from tbtui.server_status import ServerStatus

_BETWEEN_LOOKS_SEC = 1.0
_LATELY_SEC = 10.0
"""What the server said longer ago says nothing of now."""


class ServerWatch:
    """What a server last said of itself, beside what can be seen of it from outside."""

    def __init__(self, connection: Connection, meter: RequestMeter) -> None:
        self._connection = connection
        self._meter = meter
        self._running: int | None = None
        """Requests of all its clients that the server computed when it was last looked at."""
        self._inference: InferenceStatus | None = None
        self._looked_at = -math.inf
        self._asked = asyncio.Event()
        self._looking = asyncio.create_task(self._look())

    def in_flight(self, count: int) -> None:
        """So many requests are unanswered from now on."""
        if count:
            self._asked.set()
        else:
            self._asked.clear()
            self._running = None

    def running(self, in_flight: int) -> int:
        """How many of so many unanswered requests it computes: it counts everybody's, and ours are
        no more than that."""
        return in_flight if self._running is None else min(in_flight, self._running)

    def status(self) -> ServerStatus:
        server = self._meter.status()
        if self._inference and time.monotonic() - self._looked_at < _LATELY_SEC:
            return self._inference.added_to(server)
        return server

    async def close(self) -> None:
        self._looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking

    async def _look(self) -> None:
        window = InferenceWindow()
        while True:
            await self._asked.wait()
            try:
                text = await self._connection.text("/metrics", "reading metrics")
                metrics = read_metrics(text)
            except PolicyRefusedError:
                return
            except (PolicyError, ValueError):
                # Something else answers there, or the requests themselves show what is wrong.
                self._running = None
            else:
                self._running = metrics.gauge("num_requests_running")
                if metrics.values:
                    self._looked_at = time.monotonic()
                    self._inference = window.look(self._looked_at, [metrics])
            await asyncio.sleep(_BETWEEN_LOOKS_SEC)
