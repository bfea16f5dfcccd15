"""How far cached decoding in bf16 is from the trainer's one forward pass, with the same weights:
`uv run --extra torch python -m tests.benchmarks.torch_bf16_gap`.

Random Qwen3, Llama and Gemma-3 of 12 layers, flat and peaked: four probes of 16 tokens each, as the
sentinel takes them. Prints the mean and the largest gap, in nats a token.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tbtui.policies.base import Datum
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer

VOCABULARY, LAYERS, PROMPT, TOKENS, PROBES = 8192, 12, 48, 16, 4
SPREADS = (0.02, 0.06)
"""Standard deviation of the weights: transformers' own, and one with larger logits."""


def make(architecture: str, spread: float) -> Any:
    torch.manual_seed(0)
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 768,
        "num_hidden_layers": LAYERS, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 32, "max_position_embeddings": 512, "initializer_range": spread,
        "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
    }  # fmt: skip
    if architecture == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**common, tie_word_embeddings=True))
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**common))
    kinds = ["full_attention" if n % 6 == 5 else "sliding_attention" for n in range(LAYERS)]
    config = Gemma3TextConfig(
        **common, sliding_window=64, query_pre_attn_scalar=32, layer_types=kinds
    )
    return Gemma3ForCausalLM(config)


@torch.inference_mode()
def draw(model: Any, seed: int) -> Datum:
    """A completion drawn a token at a time, with the log-probabilities at which it was drawn."""
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(2, VOCABULARY, (1, PROMPT), generator=generator)
    out = model(input_ids=prompt, use_cache=True)
    ids, logprobs = [], []
    for _ in range(TOKENS):
        each = torch.log_softmax(out.logits[0, -1].float(), -1)
        ids.append(int(torch.multinomial(each.exp(), 1, generator=generator)))
        logprobs.append(float(each[ids[-1]]))
        out = model(
            input_ids=torch.tensor([ids[-1:]]), past_key_values=out.past_key_values, use_cache=True
        )
    tokens = np.array([*prompt[0].tolist(), *ids], np.int32)
    mask = np.arange(len(tokens)) >= PROMPT
    drawn = np.zeros(len(tokens), np.float32)
    drawn[mask] = logprobs
    return Datum(tokens, mask, drawn, np.zeros_like(drawn), np.ones_like(drawn))


def main() -> None:
    for architecture in ("qwen3", "llama", "gemma3"):
        for spread in SPREADS:
            with tempfile.TemporaryDirectory() as folder:
                make(architecture, spread).save_pretrained(folder)
                trainer = Trainer(
                    TrainerSettings(
                        str(Path(folder)), lora_rank=4, dtype="bf16", train_device="cpu"
                    )
                )
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
                data = [draw(model, seed) for seed in range(PROBES)]
            scored = trainer.score(data, "trained")
            gaps = [
                float(np.abs(found - datum.logprobs[datum.mask]).mean())
                for found, datum in zip(scored, data, strict=True)
            ]
            print(
                f"{architecture:8} weights {spread:g}: gap mean {np.mean(gaps):.4f},"
                f" largest {max(gaps):.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
