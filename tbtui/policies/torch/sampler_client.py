"""Which sampling engine there is for a device, and why (`sampler=auto`); and `sampler=transformers`
as the policy sees it: a process of its own draws completions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Literal

import msgspec

from tbtui.policies.base import PolicyError, Sample, SampleRequest
from tbtui.policies.policy_process import PolicyProcess
from tbtui.policies.torch.messages import ReadWeights, SamplerOrder, SamplerResult
from tbtui.policies.torch.sampling import SamplerSettings, SamplingEngine
from tbtui.policies.torch.vllm_environment import Tell, can_install
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tbtui.policies.work import fitted
from tbtui.server_status import ServerStatus

_MODULE = "tbtui.policies.torch.sampler_process"
_ENVIRONMENT = {
    # Nothing reads a progress bar in a log.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

SamplerProcess = PolicyProcess[SamplerOrder, SamplerResult, None]


class TransformersSampler:
    """Implements `SamplingEngine`. Once its process has failed, every call fails with the same
    reason."""

    notes: tuple[str, ...] = ()
    server: ServerStatus | None = None
    sleeps = False

    def __init__(self, settings: SamplerSettings, log: IO[bytes] | None = None) -> None:
        """`log`: where the process's output goes."""
        self._settings = settings
        self._log = log
        self._process: SamplerProcess | None = None
        self._unshown = 0
        """Tokens that came with their completions' ends."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def running(self) -> int:
        return self._process.running if self._process is not None else 0

    def progress(self) -> int | None:
        return self._process.progress if self._process is not None else None

    async def start(self) -> None:
        settings = msgspec.json.encode(self._settings).decode()
        self._process, _ = await SamplerProcess.start(
            _MODULE, (settings,), self._log, name="the sampler's process", env=_ENVIRONMENT
        )

    def drawn(self) -> int | None:
        return None if self._process is None else self._process.drawn + self._unshown

    async def sample(self, request: SampleRequest) -> Sample:
        shown = 0

        def on_drawn(before: int, ids: tuple[int, ...]) -> None:
            nonlocal shown
            shown = before + len(ids)
            if request.on_drawn is not None:
                request.on_drawn(before, ids)

        asked = fitted(request, self._settings.context_limit)
        drawn = await self._started().call(asked, on_drawn)
        assert drawn is not None
        self._unshown += len(drawn.completion_ids) - shown
        return drawn

    async def publish(self, version: int, weights: Path) -> None:
        await self._started().call(ReadWeights(version, weights))

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


type Wanted = Literal["auto", "transformers", "vllm"]


def why_not_vllm(settings: SamplerSettings) -> str | None:
    """What keeps `sampler=auto` from vLLM; None: nothing does."""
    if not settings.device.startswith("cuda"):
        return f"on {settings.device} it gains little"
    if sys.platform != "linux":
        return "it runs on Linux alone"
    if not settings.lora_rank:
        return "it is given LoRA adapters, and lora_rank=0 trains all weights"
    if not can_install():
        return "uv, which installs it, is not there"
    return None


def make_sampler(
    wanted: Wanted, settings: SamplerSettings, vllm: VllmSettings,
    log: IO[bytes] | None = None, tell: Tell | None = None,
) -> tuple[SamplingEngine, tuple[str, ...]]:  # fmt: skip
    """The engine, not started yet, and notes on the choice for `PolicyInfo.notes`, which come
    before the engine's own: why there is a slower one where vLLM would gain much."""
    if wanted == "vllm" or (wanted == "auto" and vllm.base_url is not None):
        return VllmSampler(settings, vllm, log, tell), ()
    if wanted == "transformers":
        return TransformersSampler(settings, log), ()
    reason = why_not_vllm(settings)
    if reason is None:
        return VllmSampler(settings, vllm, log, tell), ()
    slower = settings.device.startswith("cuda")
    notes = (f"sampler=auto chose transformers, which is slower: {reason}",) if slower else ()
    return TransformersSampler(settings, log), notes
