"""The settings of a run that a model trained on this machine needs, under their own names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.policies.base import Thinking
from tbtui.policies.chat.tool_formats import ToolFormat


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """What the trainer's process needs to know."""

    model_name: str
    """A directory, or a name on the Hugging Face hub."""
    checkpoint: Path | None = None
    """Where a new training starts from; its weights are taken, and are the reference. None: the
    model's own weights."""
    lora_rank: int = 32
    """0: all weights are trained."""
    lora_alpha: float = 32.0
    lora_targets: tuple[str, ...] = ()
    """Ends of module names; empty: every linear layer but the output head."""
    dtype: Literal["auto", "bf16", "fp32"] = "auto"
    train_device: str = "auto"
    micro_batch_tokens: int = 0
    """Most tokens of one pass, padding included; 0: chosen by the device."""
    gradient_checkpointing: bool = True
    seed: int = 0
    trains: bool = True
    """False: an evaluation, which needs no trainer."""
    context_limit: int | None = None
    """Tokens; None: the model's whole context."""


@dataclass(frozen=True, slots=True)
class TorchSettings(TrainerSettings):
    """What the policy needs to know: the trainer's settings, the sampler's and the renderer's."""

    sampler: Literal["auto", "transformers", "vllm"] = "auto"
    vllm_devices: tuple[str, ...] = ()
    vllm_base_url: str | None = None
    """A vLLM server that runs already; None: tbtui starts one where it needs one."""
    vllm_sleeps: bool = False
    """Nothing is sampled while a step is trained: vLLM may give its memory back for as long."""
    max_rows: int = 16
    """Most completions that are computed at once."""
    tokenizer: str | None = None
    """Directory, or name on the hub; None: the model's own."""
    renderer: str = "template"
    thinking: Thinking = "keep"
    tool_format: ToolFormat = "auto"
