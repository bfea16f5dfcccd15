"""`sampler=transformers` as the policy sees it: a process of its own draws completions."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import msgspec

from tbtui.policies.base import PolicyError, Sample, SampleRequest
from tbtui.policies.policy_process import PolicyProcess
from tbtui.policies.torch.sampler_messages import Order, Publish, Result
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.work import fitted
from tbtui.server_status import ServerStatus

_MODULE = "tbtui.policies.torch.sampler_process"
_ENVIRONMENT = {
    # Nothing reads a progress bar in a log.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

SamplerProcess = PolicyProcess[Order, Result, None]


class TransformersSampler:
    """Implements `SamplingEngine`. Once its process has failed, every call fails with the same
    reason."""

    notes = ("sampler=transformers: tbtui's own continuous batching on transformers",)
    server: ServerStatus | None = None
    sleeps = False

    def __init__(self, settings: SamplerSettings, log: IO[bytes] | None = None) -> None:
        """`log`: where the process's output goes."""
        self._settings = settings
        self._log = log
        self._process: SamplerProcess | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def running(self) -> int:
        return self._process.running if self._process is not None else 0

    async def start(self) -> None:
        settings = msgspec.json.encode(self._settings).decode()
        self._process, _ = await SamplerProcess.start(
            _MODULE, (settings,), self._log, name="the sampler's process", env=_ENVIRONMENT
        )

    async def sample(self, request: SampleRequest) -> Sample:
        drawn = await self._started().call(fitted(request, self._settings.context_limit))
        assert drawn is not None
        return drawn

    async def publish(self, version: int, weights: Path) -> None:
        await self._started().call(Publish(version, weights))

    async def sleep(self) -> None:
        """There is nothing to give back: what it holds it needs for the next completion."""

    async def wake(self) -> None: ...

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    def _started(self) -> SamplerProcess:
        if self._process is None:
            raise PolicyError("the sampler is not running")
        return self._process
