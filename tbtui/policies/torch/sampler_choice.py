"""`sampler=auto`: which sampling engine there is for a device, and why."""

from __future__ import annotations

import sys
from typing import IO, Literal

from tbtui.policies.torch.sampler_client import TransformersSampler
from tbtui.policies.torch.sampling import SamplerSettings, SamplingEngine
from tbtui.policies.torch.vllm_environment import Tell, can_install
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings

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
    before the engine's own."""
    if wanted == "vllm" or (wanted == "auto" and vllm.base_url is not None):
        return VllmSampler(settings, vllm, log, tell), ()
    if wanted == "transformers":
        return TransformersSampler(settings, log), ()
    reason = why_not_vllm(settings)
    if reason is None:
        note = "sampler=auto chose vllm: a CUDA device on Linux, and uv is there"
        return VllmSampler(settings, vllm, log, tell), (note,)
    return TransformersSampler(settings, log), (f"sampler=auto chose transformers: {reason}",)
