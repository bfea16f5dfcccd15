"""All that `policy=torch` does on a device, in one go: is it right, how fast, how large.

    python -m tests.by_hand.gpu_run [--size 0.6b] [--device auto] [--steps 10]
        [--parts agreement memory speed steps] [--json FILE]

Offline, with random weights in the shape of a Qwen3: nothing is downloaded, and no tokenizer, no
Harbor and no trial is needed, only torch, transformers, peft and little else.
Prints, with a mark for what is wrong, and exits with 1 if anything is:

    agreement   log-probabilities of the sampler, the trainer and one plain forward; the gradient
                against that of a plain PEFT loop
    memory      a step that runs out of memory takes smaller micro-batches and has the same
                gradient; on a CPU, which does not run out, the failure is injected
    speed       tokens a second, sampling and training, and the trainer's peak
    steps       sample, train, publish, on a reward that can be learned: of each token, if it is
                from the first half of the vocabulary
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tbtui.policies.base import (
    MODEL_ITSELF,
    Datum,
    LossSettings,
    OptimSettings,
    Sample,
    SampleRequest,
)
from tbtui.policies.torch.loading import load_base, resolve_device, with_lora
from tbtui.policies.torch.sampler_client import TransformersSampler
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer

LORA_RANK = 16
PARTS = ("agreement", "memory", "speed", "steps")
GROUP = 16
"""Completions of one prompt."""


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    prompt: int
    completion: int
    learning_rate: float


SIZES = {
    "tiny": Size(64, 128, 2, 4, 2, 16, 512, 24, 16, 1e-2),
    # As Qwen3's of these names.
    "0.6b": Size(1024, 3072, 28, 16, 8, 128, 151_936, 512, 256, 1e-3),
    "1.7b": Size(2048, 6144, 28, 16, 8, 128, 151_936, 512, 256, 1e-3),
    "4b": Size(2560, 9728, 36, 32, 8, 128, 151_936, 512, 256, 5e-4),
}


class Report:
    """What was found: printed as it comes, kept for JSON."""

    def __init__(self) -> None:
        self.figures: dict[str, float | str] = {}
        self.wrong: list[str] = []

    def note(self, name: str, value: float | str, unit: str = "") -> None:
        self.figures[name] = value
        shown = value if isinstance(value, str) else f"{value:,.4g}"
        print(f"  {name:44} {shown} {unit}".rstrip(), flush=True)

    def check(self, name: str, value: float, holds: bool, bound: str) -> None:
        self.figures[name] = value
        if not holds:
            self.wrong.append(name)
        mark = "ok" if holds else "WRONG"
        print(f"  {name:44} {value:<10.3g} {bound:14} {mark}", flush=True)


def make_model(size: Size, directory: Path, context: int) -> int:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=size.vocabulary, hidden_size=size.width, intermediate_size=size.inner,
        num_hidden_layers=size.layers, num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads, head_dim=size.head, tie_word_embeddings=True,
        max_position_embeddings=context, initializer_range=0.05,
        pad_token_id=0, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # A random head has no direction that tells the rewarded tokens from the others.
        rows = model.get_input_embeddings().weight
        rows[: size.vocabulary // 2] += 0.05 * torch.randn(size.width).sign()
    model.save_pretrained(directory)
    return sum(each.numel() for each in model.parameters())


def requests_for(size: Size, prompt: int, count: int = GROUP) -> list[SampleRequest]:
    """One prompt, drawn by its number, with a seed for each completion."""
    ids = np.random.default_rng(prompt).integers(2, size.vocabulary, size.prompt).tolist()
    return [
        SampleRequest(tuple(ids), size.completion, MODEL_ITSELF, prompt * count + seed)
        for seed in range(count)
    ]


async def draw(engine: TransformersSampler, requests: Sequence[SampleRequest]) -> list[Sample]:
    return list(await asyncio.gather(*(engine.sample(request) for request in requests)))


def datum_of(request: SampleRequest, drawn: Sample, advantages: float | npt.NDArray[Any]) -> Datum:
    tokens = np.array([*request.prompt_ids, *drawn.completion_ids], np.int32)
    mask = np.arange(len(tokens)) >= len(request.prompt_ids)
    logprobs = np.zeros(len(tokens), np.float32)
    logprobs[mask] = drawn.logprobs
    weighed = np.zeros(len(tokens), np.float32)
    weighed[mask] = advantages
    return Datum(tokens, mask, logprobs, weighed, np.ones(len(tokens), np.float32))


def gap(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """Largest mean difference of a completion's log-probabilities, nats a token."""
    return max(
        float(np.abs(np.asarray(a) - np.asarray(b)).mean())
        for a, b in zip(ones, others, strict=True)
    )


def gradient_of(trainer: Trainer) -> torch.Tensor:
    """The gradient that has been added up, as one vector in the order of the parameters."""
    found = trainer._optimizer.gradients()
    return torch.cat([found[name].flatten() for name in trainer.parameters])


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=0))


def plain_pass(
    model: Path, trainer: Trainer, data: Sequence[Datum]
) -> tuple[list[Any], torch.Tensor]:
    """Log-probabilities and gradient by a plain PEFT loop: a datum at a time, whole logits."""
    peft = with_lora(
        load_base(model, trainer.dtype, trainer.device), LORA_RANK, TrainerSettings("").lora_alpha,
        (), TrainerSettings("").seed,
    )  # fmt: skip
    found = []
    for datum in data:
        ids = torch.from_numpy(datum.tokens.astype(np.int64))[None].to(trainer.device)
        trained = torch.from_numpy(datum.mask.nonzero()[0]).to(trainer.device)
        logits = peft(input_ids=ids, use_cache=False).logits[0, trained - 1].float()
        new = torch.log_softmax(logits, -1).gather(1, ids[0, trained][:, None])[:, 0]
        old = torch.from_numpy(datum.logprobs[datum.mask]).to(trainer.device)
        (-float(datum.advantages[-1]) * torch.exp(new - old)).sum().backward()
        found.append(new.detach().cpu().numpy())
    named = {name: each.grad for name, each in peft.named_parameters() if each.requires_grad}
    return found, torch.cat([named[name].flatten().float() for name in trainer.parameters])


def agreement(report: Report, model: Path, trainer: Trainer, data: list[Datum]) -> None:
    """Compare what was drawn with what is scored and with a plain loop, before any step."""
    print("agreement")
    fp32 = trainer.dtype == "float32"
    bound = 1e-4 if fp32 else 0.1
    drawn = [datum.logprobs[datum.mask] for datum in data]
    scored = trainer.score(data, "trained")
    report.check(
        "sampler against trainer, nats a token", gap(drawn, scored), gap(drawn, scored) < bound,
        f"< {bound:g}",
    )  # fmt: skip
    plain, plain_gradient = plain_pass(model, trainer, data[:4])
    difference = gap(plain, scored[:4])
    report.check("trainer against a plain forward", difference, difference < bound, f"< {bound:g}")
    trainer.accumulate(data[:4], LossSettings())
    same = cosine(gradient_of(trainer), plain_gradient)
    least = 0.9999 if fp32 else 0.99
    report.check("cosine of gradients, trainer and plain", same, same >= least, f">= {least:g}")


def running_out(report: Report, trainer: Trainer, data: list[Datum], start: Path) -> None:
    """The gradient of a step that ran out of memory, against that of one that did not."""
    print("memory")
    trainer.accumulate(data, LossSettings())
    whole = gradient_of(trainer)
    trainer.load(start)
    with half_the_memory(trainer, sum(len(datum.tokens) for datum in data)):
        metrics = trainer.accumulate(data, LossSettings()).metrics
    same = cosine(gradient_of(trainer), whole)
    times = metrics["out_of_memory"]
    report.check("times out of memory in the limited step", times, times >= 1, ">= 1")
    report.check("cosine of its gradient with the whole one", same, same >= 0.999, ">= 0.999")
    report.note("micro-batch after it", metrics["micro_batch_tokens"], "tokens")


@contextlib.contextmanager
def half_the_memory(trainer: Trainer, tokens: int) -> Iterator[None]:
    """A step of so many tokens finds half of what it takes beyond what stays allocated."""
    device = trainer.device
    if device.startswith("cuda"):
        trainer.release()
        index = torch.device(device).index
        index = torch.cuda.current_device() if index is None else index
        rests, peak = torch.cuda.memory_reserved(index), torch.cuda.max_memory_reserved(index)
        _, total = torch.cuda.mem_get_info(index)
        torch.cuda.set_per_process_memory_fraction((rests + (peak - rests) / 2) / total, index)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, index)
        return
    print("  (a CPU does not run out: the failure is injected)")
    decoder = trainer._causal.get_decoder()
    forward: Callable[..., Any] = decoder.forward

    def injected(input_ids: torch.Tensor, **more: Any) -> Any:
        if input_ids.numel() > tokens // 2:
            raise torch.OutOfMemoryError("injected")
        return forward(input_ids=input_ids, **more)

    decoder.forward = injected
    try:
        yield
    finally:
        decoder.forward = forward


def peak_gb(device: str) -> float:
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device)) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


async def speed(report: Report, size: Size, engine: TransformersSampler, trainer: Trainer) -> None:
    print("speed")
    requests = requests_for(size, 1000)
    started = time.perf_counter()
    drawn = await draw(engine, requests)
    seconds = time.perf_counter() - started
    tokens = sum(len(each.completion_ids) for each in drawn)
    report.note(f"sampling, {GROUP} at once", tokens / seconds, "tokens/s")
    data = [datum_of(*each, 1.0) for each in zip(requests, drawn, strict=True)]
    started = time.perf_counter()
    trainer.accumulate(data, LossSettings())
    trainer.apply(OptimSettings(0.0))
    seconds = time.perf_counter() - started
    report.note(
        "training, prompts included", sum(len(each.tokens) for each in data) / seconds, "tokens/s"
    )
    report.note("the trainer's peak", peak_gb(trainer.device), "GB")


async def learn(
    report: Report, size: Size, engine: TransformersSampler, trainer: Trainer, steps: int
) -> None:
    print("steps")
    rewards, gaps = [], []
    with tempfile.TemporaryDirectory() as weights:
        for step in range(1, steps + 1):
            data: list[Datum] = []
            earned: list[float] = []
            for prompt in range(2):
                requests = requests_for(size, prompt + 2 * step)
                drawn = await draw(engine, requests)
                rewarded = [np.array(s.completion_ids) < size.vocabulary // 2 for s in drawn]
                mean = float(np.mean(np.concatenate(rewarded)))
                data += [
                    datum_of(request, sample, each - mean)
                    for request, sample, each in zip(requests, drawn, rewarded, strict=True)
                ]
                earned.append(mean)
            gaps.append(gap([d.logprobs[d.mask] for d in data], trainer.score(data, "trained")))
            result = trainer.accumulate(data, LossSettings())
            trained = result.metrics["trained_tokens"]
            trainer.apply(OptimSettings(size.learning_rate, 1.0, divide_by=trained))
            version, directory = await asyncio.to_thread(trainer.publish, Path(weights))
            if directory is not None:
                await engine.publish(version, directory)
            rewards.append(float(np.mean(earned)))
            print(f"  {step:3}  reward {rewards[-1]:.3f}  gap {gaps[-1]:.1e}", flush=True)
    third = max(1, steps // 3)
    gained = float(np.mean(rewards[-third:]) - np.mean(rewards[:third]))
    report.check("reward gained, last third less first", gained, gained > 0.05, "> 0.05")
    bound = 1e-3 if trainer.dtype == "float32" else 0.1
    report.check("largest gap of sampler and trainer", max(gaps), max(gaps) < bound, f"< {bound:g}")


async def everything(arguments: argparse.Namespace, report: Report) -> None:
    size = SIZES[arguments.size]
    device = resolve_device(arguments.device)
    context = size.prompt + size.completion
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        count = make_model(size, model, context)
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        print(f"{count / 1e6:,.1f}M parameters on {name}, torch {torch.__version__}")
        report.figures |= {"parameters": count, "device": name, "torch": torch.__version__}
        trainer = Trainer(
            TrainerSettings(str(model), lora_rank=LORA_RANK, train_device=arguments.device)
        )
        print(trainer.description)
        start = Path(folder) / "start"
        trainer.save(start)
        engine = TransformersSampler(
            SamplerSettings(str(model), trainer.dtype, device, context, GROUP, 0, LORA_RANK, ()),
            log=sys.stderr.buffer,
        )
        await engine.start()
        try:
            requests = requests_for(size, 0)
            drawn = await draw(engine, requests)
            data = [
                datum_of(*each, (-1.0) ** index)
                for index, each in enumerate(zip(requests, drawn, strict=True))
            ]
            if "agreement" in arguments.parts:
                agreement(report, model, trainer, data)
                trainer.load(start)
            if "memory" in arguments.parts:
                running_out(report, trainer, data, start)
                trainer.load(start)
            if "speed" in arguments.parts:
                await speed(report, size, engine, trainer)
                trainer.load(start)
            if "steps" in arguments.parts:
                await learn(report, size, engine, trainer, arguments.steps)
        finally:
            await engine.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="0.6b")
    parser.add_argument("--device", default="auto", help="cuda, cuda:1, mps, cpu")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    # tbtui need not be installed here, and the sampler's process doesn't look into its directory.
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    report = Report()
    asyncio.run(everything(arguments, report))
    packages = {"harbor", "textual", "tinker", "vllm"} & sys.modules.keys()
    report.note("harbor, textual, tinker, vllm imported", ", ".join(sorted(packages)) or "nothing")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"figures": report.figures, "wrong": report.wrong}, indent=2) + "\n"
        )
    print(f"wrong: {', '.join(report.wrong)}" if report.wrong else "all is right")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
