"""How much memory a vLLM server is started with: a share of a GPU, or a cache on a CPU."""

from __future__ import annotations

import math

from tbtui.policies.torch.free_memory import Memory, free_memory
from tbtui.policies.torch.memory_plan import (
    VLLM_RUNTIME,
    Dimensions,
    PlanSettings,
    kv_bytes_per_token,
    parameters,
)
from tbtui.policies.torch.model_files import ModelFiles, find_model
from tbtui.policies.torch.sampling import SamplerSettings

ALONE = 0.9
"""vLLM's own share, where nothing else is on the GPU."""
_LARGEST_SHARED = 0.5
"""Beside a trainer, which has weights, gradients and activations to hold."""
_SMALLEST = 0.1
_LEFT_FREE = 0.02
"""Share of a GPU: what others take while it starts."""
_UNKNOWN_CACHE = 2
"""GiB, where the model's files don't say what its keys and values take."""


def fixed_bytes(model: ModelFiles, plan: PlanSettings) -> int:
    """Weights, CUDA's context and a forward's activations."""
    assert model.shapes is not None
    return int(parameters(model.shapes, model.config) * plan.itemsize + VLLM_RUNTIME)


def cache_bytes(model: ModelFiles, plan: PlanSettings) -> int:
    """Keys and values of all trials at half of the context limit, which few reach at once, or of
    one at the limit."""
    per_token = kv_bytes_per_token(Dimensions.of(model.config), plan.itemsize)
    return per_token * max(plan.n_parallel_envs * plan.context_limit // 2, plan.context_limit)


def memory_share(needed: int, memory: Memory) -> float:
    """The share of a GPU that trains too, from 0 to 1: what is needed, no more than half of it,
    and no more than is free."""
    wanted = math.ceil(100 * needed / memory.total) / 100
    free = math.floor(100 * (memory.free / memory.total - _LEFT_FREE)) / 100
    return max(_SMALLEST, min(wanted, _LARGEST_SHARED, free))


def share_for(settings: SamplerSettings, *, shared: bool) -> float | None:
    """vLLM's `gpu_memory_utilization`; None where nothing is known: its own default."""
    if not shared:
        return ALONE
    memory, found = free_memory(settings.device), _sized(settings)
    if memory.kind != "cuda" or found is None:
        return None
    model, plan = found
    return memory_share(fixed_bytes(model, plan) + cache_bytes(model, plan), memory)


def cache_gigabytes(settings: SamplerSettings) -> int:
    """GiB of keys and values on a CPU (`VLLM_CPU_KVCACHE_SPACE`)."""
    found = _sized(settings)
    return _UNKNOWN_CACHE if found is None else whole_gigabytes(cache_bytes(*found))


def whole_gigabytes(size: int) -> int:
    return max(1, math.ceil(size / (1 << 30)))


def _sized(settings: SamplerSettings) -> tuple[ModelFiles, PlanSettings] | None:
    """The model's files, which are on this machine by now, where they say how large it is."""
    model = find_model(settings.model)
    plan = PlanSettings(
        lora_rank=settings.lora_rank,
        lora_targets=(),
        itemsize=2 if settings.dtype == "bfloat16" else 4,
        on_gpu=settings.device.startswith("cuda"),
        vllm=True,
        context_limit=settings.context_limit,
        n_parallel_envs=settings.max_rows,
    )
    try:
        Dimensions.of(model.config)
    except KeyError:
        return None
    return None if model.shapes is None else (model, plan)
