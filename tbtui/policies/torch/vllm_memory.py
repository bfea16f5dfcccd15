"""How much of a GPU's memory a vLLM server is given, by an estimate from the model's files."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.policies.torch.sampling import SamplerSettings

_ALONE = 0.9
"""vLLM's own share, where nothing else is on the GPU."""
_LARGEST_SHARED = 0.5
"""Beside a trainer, which has weights, gradients and activations to hold."""
_SMALLEST = 0.1
_OVERHEAD = 2.5e9
"""CUDA's context and the activations of a forward, in bytes."""
_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes."""

    total: int
    free: int


def server_bytes(model: Path, settings: SamplerSettings) -> int:
    """Bytes that weights, keys and values and the rest take: room for all rows at half of the
    context limit each, which few reach at once.

    Args:
        model: directory with config.json and the weights.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    text: dict[str, Any] = config.get("text_config") or config
    heads = text["num_attention_heads"]
    head_size = text.get("head_dim") or text["hidden_size"] // heads
    kv_heads = text.get("num_key_value_heads") or heads
    size = _BYTES[settings.dtype]
    token = 2 * text["num_hidden_layers"] * kv_heads * head_size * size
    stored = str(config.get("dtype") or config.get("torch_dtype") or settings.dtype)
    files = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    weights = files * size / _BYTES.get(stored, 2)
    tokens = settings.max_rows * settings.context_limit // 2
    return int(weights + token * max(tokens, settings.context_limit) + _OVERHEAD)


def memory_share(needed: int, gpu: GpuMemory) -> float:
    """The share of a GPU that trains too, from 0 to 1: what is needed, no more than half of it,
    and no more than is free."""
    share = min(needed / gpu.total, _LARGEST_SHARED, gpu.free / gpu.total - 0.02)
    return max(_SMALLEST, round(share, 2))


async def share_for(settings: SamplerSettings, device: str, *, shared: bool) -> float | None:
    """Return vLLM's `gpu_memory_utilization`; None where nothing is known: its own default."""
    if not shared:
        return _ALONE
    gpu = await gpu_memory(device)
    if gpu is None:
        return None
    return await asyncio.to_thread(_share_of, settings, gpu)


def _share_of(settings: SamplerSettings, gpu: GpuMemory) -> float | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    model = Path(settings.model)
    if not model.is_dir():
        try:
            model = Path(snapshot_download(str(settings.model), local_files_only=True))
        except (LocalEntryNotFoundError, ValueError):
            return None
    if not (model / "config.json").is_file():
        return None
    return memory_share(server_bytes(model, settings), gpu)


async def gpu_memory(device: str) -> GpuMemory | None:
    """Memory of the GPU that the driver counts as `device`; None where it doesn't say."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    process = await asyncio.create_subprocess_exec(
        program, "--query-gpu=memory.total,memory.free", "--format=csv,noheader,nounits",
        f"--id={device}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = await process.communicate()
    try:
        total, free = (int(each) << 20 for each in out.decode().strip().split(","))
    except ValueError:
        return None
    return GpuMemory(total, free)
