"""The settings of a Tinker policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tbtui.policies.base import LossName


@dataclass(frozen=True, slots=True)
class TinkerSettings:
    """The settings of a run that its Tinker policy needs, under their own names."""

    model_name: str
    """Base model, as the server calls it."""
    checkpoint: str | None = None
    """To start from: a `tinker://` path, or a checkpoint directory that `save` wrote."""
    base_url: str | None = None
    """None: `TINKER_BASE_URL`, else the hosted service."""
    lora_rank: int = 32
    seed: int = 0
    loss: LossName = "importance_sampling"
    """The one that will be asked for, so that it can be seen at start whether the server has it."""
    context_limit: int | None = None
    """Tokens; None: all that the server allows for the model."""
    tokenizer: str | None = None
    """Directory, or name on the Hugging Face hub; None: what the server names."""
    renderer: str = "template"
    thinking: Literal["keep", "strip", "off"] = "keep"
    checkpoint_ttl_hours: int | None = None
    run_name: str | None = None
    """For the server's list of sessions."""
