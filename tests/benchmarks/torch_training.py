"""Training tokens a second against a plain PEFT loop, and the memory that chunks save.

    uv run --extra torch python -m tests.benchmarks.torch_training speed
    uv run --extra torch python -m tests.benchmarks.torch_training memory --tokens 3000 \\
        --vocabulary 152000

`speed`: trials of 20 turns, each turn a prompt that extends the one before. The plain loop trains a
datum for each turn, whole logits at once, as most scripts around PEFT do; ours one segment for each
trial. Pairs alternate, so that a busy machine slows both down.

`memory`: peak of resident memory (on CUDA: of the allocator) for one step on a long segment with a
large vocabulary and a tiny body, in processes of their own. The whole logits in fp32 are
tokens x vocabulary x 4 bytes, and their gradient as much again.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.step import Datum
from tbtui.policies.base import OptimSettings
from tbtui.policies.torch import trainer as trainer_module
from tbtui.policies.torch.loading import load_base, with_lora
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer

TURNS = 20
STEP = OptimSettings(1e-5)


def make_model(directory: Path, width: int, layers: int, vocabulary: int, context: int) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=3 * width,
        num_hidden_layers=layers, num_attention_heads=max(1, width // 64),
        num_key_value_heads=max(1, width // 128), head_dim=64, max_position_embeddings=context,
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(directory)


def trial(rng: np.random.Generator, vocabulary: int, observed: int, answered: int) -> Datum:
    """One segment of TURNS turns: an observation, then an answer that is trained."""
    mask = np.tile(np.arange(observed + answered) >= observed, TURNS)
    length = len(mask)
    return Datum(
        rng.integers(2, vocabulary, length).astype(np.int32),
        mask,
        np.full(length, -np.log(vocabulary), np.float32),
        np.full(length, rng.normal(), np.float32),
        np.ones(length, np.float32),
    )


def plain_loop(model: Any, optimizer: Any, data: list[Datum], turn: int, device: str) -> float:
    """A datum for each turn: its whole prompt again, and its answer alone trained."""
    started = time.perf_counter()
    for datum in data:
        for end in range(turn, len(datum.tokens) + 1, turn):
            ids = torch.from_numpy(datum.tokens[:end].astype(np.int64))[None].to(device)
            trained = torch.from_numpy(datum.mask[end - turn : end].nonzero()[0]) + end - turn
            logits = model(input_ids=ids, use_cache=False).logits[0, trained - 1].float()
            new = torch.log_softmax(logits, -1).gather(1, ids[0, trained][:, None])[:, 0]
            old = torch.from_numpy(datum.logprobs[trained.numpy()]).to(device)
            (-float(datum.advantages[0]) * torch.exp(new - old)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - started


def ours(trainer: Trainer, data: list[Datum]) -> float:
    started = time.perf_counter()
    trainer.accumulate(data, LossSettings())
    trainer.apply(STEP)
    return time.perf_counter() - started


def speed(arguments: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    turn = arguments.observed + arguments.answered
    with tempfile.TemporaryDirectory() as directory:
        make_model(
            Path(directory), arguments.width, arguments.layers, arguments.vocabulary, TURNS * turn
        )
        trainer = Trainer(TrainerSettings(directory, lora_rank=16, train_device=arguments.device))
        base = load_base(directory, trainer.dtype, trainer.device)
        base.gradient_checkpointing_enable({"use_reentrant": False})
        peft = with_lora(base, 16, 32.0, ()).train()
        optimizer = torch.optim.AdamW(p for p in peft.parameters() if p.requires_grad)
        ratios = []
        for round in range(arguments.rounds):
            data = [
                trial(rng, arguments.vocabulary, arguments.observed, arguments.answered)
                for _ in range(arguments.trials)
            ]
            trained = sum(int(datum.mask.sum()) for datum in data)
            plain = plain_loop(peft, optimizer, data, turn, trainer.device)
            seconds = ours(trainer, data)
            ratios.append(plain / seconds)
            print(
                f"{round}: plain {trained / plain:,.0f} trained tokens/s, ours"
                f" {trained / seconds:,.0f}: {ratios[-1]:.1f} times"
            )
        print(f"median {np.median(ratios):.1f} times")


def memory(arguments: argparse.Namespace) -> None:
    for chunks in ("chunks", "whole"):
        command = [sys.executable, "-m", "tests.benchmarks.torch_training", "memory-of", chunks]
        for name in ("tokens", "vocabulary", "device"):
            command += [f"--{name}", str(getattr(arguments, name))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        last = (done.stdout.splitlines() or ["it did not fit"])[-1]
        print(f"{chunks}: {last}" + ("" if done.returncode == 0 else f" ({done.returncode})"))


def memory_of(arguments: argparse.Namespace) -> None:
    if arguments.chunks == "whole":
        trainer_module.chunk_length = lambda _: arguments.tokens
    with tempfile.TemporaryDirectory() as directory:
        make_model(Path(directory), 64, 1, arguments.vocabulary, arguments.tokens)
        trainer = Trainer(TrainerSettings(directory, lora_rank=8, train_device=arguments.device))
        rng = np.random.default_rng(0)
        share = arguments.tokens // TURNS
        datum = trial(rng, arguments.vocabulary, 1, share - 1)
        before = peak(trainer.device)
        seconds = ours(trainer, [datum])
        print(
            f"{len(datum.tokens)} tokens, {int(datum.mask.sum())} trained, vocabulary"
            f" {arguments.vocabulary}: peak {peak(trainer.device):.2f} GB, {before:.2f} GB before"
            f" the step, {seconds:.0f} s"
        )


def peak(device: str) -> float:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("speed", "memory", "memory-of"))
    parser.add_argument("chunks", nargs="?", choices=("chunks", "whole"))
    for name, value in (
        ("width", 256), ("layers", 4), ("vocabulary", 8192), ("trials", 4), ("observed", 40),
        ("answered", 20), ("rounds", 3), ("tokens", 32_000),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    {"speed": speed, "memory": memory, "memory-of": memory_of}[arguments.what](arguments)


if __name__ == "__main__":
    main()
