"""Tiny models of real architectures with random weights, and adapters for them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 97
CONTEXT = 160
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.25,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
ARCHITECTURES = ("qwen3", "llama", "gemma3")


def make(architecture: str, directory: Path, seed: int = 0) -> Path:
    """Write a checkpoint without a tokenizer."""
    torch.manual_seed(seed)
    model: Any
    match architecture:
        case "qwen3":
            model = Qwen3ForCausalLM(Qwen3Config(**_COMMON, tie_word_embeddings=True))
        case "llama":
            model = LlamaForCausalLM(LlamaConfig(**_COMMON))
        case _:
            # Two layers with a window of eight tokens to each that sees all.
            config = Gemma3TextConfig(
                **_COMMON,
                sliding_window=8,
                query_pre_attn_scalar=8,
                layer_types=[
                    ("full" if layer == 2 else "sliding") + "_attention" for layer in range(4)
                ],
            )
            model = Gemma3ForCausalLM(config)
    model.save_pretrained(directory)
    return directory


def adapter(model: Path, directory: Path, seed: int, rank: int = 4) -> Path:
    """Write an adapter for the model that changes what is drawn."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    peft: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    peft.save_pretrained(directory)
    return directory


def reference_logprobs(
    model: Path, ids: tuple[int, ...], prompt: int, temperature: float, adapter: Path | None = None
) -> torch.Tensor:
    """Log-probabilities of what comes after the first `prompt` tokens, by one forward of it all, as
    a trainer does."""
    with torch.inference_mode():
        logits = _loaded(model, adapter)(input_ids=torch.tensor([ids])).logits[0, prompt - 1 : -1]
    every = torch.log_softmax(logits.float() / temperature, -1)
    return every.gather(1, torch.tensor(ids[prompt:])[:, None])[:, 0]


@lru_cache(maxsize=8)
def _loaded(model: Path, adapter: Path | None) -> Any:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    return loaded if adapter is None else PeftModel.from_pretrained(loaded, str(adapter)).eval()
