"""What continuous batching gains: completions of a random model, many at once by
`sampler=transformers` against one `generate` of transformers per request.

`uv run --extra torch python -m tests.benchmarks.torch_sampling [--requests 16] [--tokens 64]
[--width 1024] [--layers 8] [--rounds 3] [--device cpu]`

A decoding step reads all weights for one token per row, so on any machine the model has to be too
large for a cache of its processor. Prompts have a common first half, as those of a group's trials
do. Both draw the same number of tokens, and nothing stops early. Prints seconds and tokens/s of
each round, taken by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tbtui.policies.base import MODEL_ITSELF, SampleRequest
from tbtui.policies.torch.loading import load_base
from tbtui.policies.torch.sampler_client import TransformersSampler
from tbtui.policies.torch.sampling import SamplerSettings

VOCABULARY = 8192


def make_model(width: int, layers: int, directory: Path) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=3 * width,
        num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=width // 128, head_dim=64, max_position_embeddings=4096,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    print(f"{sum(each.numel() for each in model.parameters()) / 1e6:.0f}M parameters")
    model.save_pretrained(directory)


def make_requests(count: int, prompt: int, tokens: int, round: int) -> list[SampleRequest]:
    rng = np.random.default_rng(round)
    common = rng.integers(2, VOCABULARY, prompt // 2).tolist()
    return [
        SampleRequest(
            (*common, *rng.integers(2, VOCABULARY, prompt - len(common)).tolist()),
            tokens,
            MODEL_ITSELF,
            seed,
        )
        for seed in range(count)
    ]


def one_by_one(model: Any, requests: list[SampleRequest], device: str) -> float:
    started = time.perf_counter()
    for request in requests:
        torch.manual_seed(request.seed)
        ids = torch.tensor([request.prompt_ids], device=device)
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, use_cache=True,
            min_new_tokens=request.max_tokens, max_new_tokens=request.max_tokens, pad_token_id=0,
        )  # fmt: skip
    return time.perf_counter() - started


async def at_once(engine: TransformersSampler, requests: list[SampleRequest]) -> float:
    started = time.perf_counter()
    drawn = await asyncio.gather(*(engine.sample(request) for request in requests))
    assert all(len(sample.completion_ids) == requests[0].max_tokens for sample in drawn)
    return time.perf_counter() - started


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (
        ("requests", 16), ("prompt", 128), ("tokens", 64), ("width", 1024), ("layers", 8),
        ("rounds", 3),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        make_model(arguments.width, arguments.layers, Path(directory))
        settings = SamplerSettings(
            directory, "float32", arguments.device, 4096, arguments.requests, 0, 0, ()
        )
        engine = TransformersSampler(settings)
        await engine.start()
        model = await asyncio.to_thread(
            load_base, Path(directory), settings.dtype, arguments.device
        )
        ratios: list[float] = []
        for round in range(arguments.rounds + 1):
            tokens = arguments.tokens if round else 4  # the first one warms up
            requests = make_requests(arguments.requests, arguments.prompt, tokens, round)
            plain = await asyncio.to_thread(one_by_one, model, requests, arguments.device)
            ours = await at_once(engine, requests)
            if round:
                total = arguments.requests * tokens
                ratios.append(plain / ours)
                print(
                    f"one by one {plain:.2f} s ({total / plain:.0f} tokens/s), at once {ours:.2f} s"
                    f" ({total / ours:.0f} tokens/s): {plain / ours:.1f} times"
                )
        await engine.close()
        print(f"median {sorted(ratios)[len(ratios) // 2]:.1f} times")


if __name__ == "__main__":
    asyncio.run(main())
