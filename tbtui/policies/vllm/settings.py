"""The settings of a vLLM policy."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.policies.base import Thinking


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """The settings of a run that its vLLM policy needs, under their own names."""

    model_name: str
    """As the server calls it: a model, or one of its LoRA adapters."""
    base_url: str | None = None
    """With `/v1` at its end or without. None: `OPENAI_BASE_URL`, else vLLM's own default."""
    context_limit: int | None = None
    """Tokens; None: all that the server allows for the model."""
    tokenizer: str | None = None
    """Directory, or name on the Hugging Face hub; None: what the server loaded the model from."""
    renderer: str = "template"
    thinking: Thinking = "keep"
