"""How far the engines' log-probabilities of the same tokens are apart, and their gradients.

    uv run --extra torch python -m tests.by_hand.agreement [--completions 16] [--tokens 64]

The embedded model, in its own form and in Hugging Face form, in fp32 on this machine's CPU. Each of
three samplers (NumPy, transformers, vLLM's CPU build, which is installed first where it isn't yet)
draws completions, and both trainers (NumPy, torch) score what each has drawn. NumPy and
transformers draw the same tokens from one seed, and are compared with each other, too. Prints the
largest difference of each pair in nats, and the cosine of the trainers' gradients; exits with 1 if
a difference is over 1e-4 or a cosine below 0.9999.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
import torch

from tbtui.algorithm.losses import LossName, LossSettings
from tbtui.policies.base import MODEL_ITSELF, Message, OptimSettings, Sample, SampleRequest
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.export import as_tensors, export
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.model import Parameters
from tbtui.policies.local.tokenizer import SHIPPED, TOKENIZER, LocalTokenizer
from tbtui.policies.torch.sampler_client import TransformersSampler
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tests.by_hand.gpu_run import Report, cosine, datum_of, gradient_of

MOST_NATS = 1e-4
LEAST_COSINE = 0.9999
TASKS = ("Create the file notes.txt", "Copy a.txt to b.txt", "How many lines has log.txt?")


class Sampler(Protocol):
    async def start(self) -> Any: ...
    async def close(self) -> None: ...
    async def sample(self, request: SampleRequest, /) -> Sample: ...


def samplers(model: Path, stop: int, rows: int, log: Any, home: Path | None) -> dict[str, Sampler]:
    settings = SamplerSettings(
        model=str(model), dtype="float32", device="cpu", context_limit=1024, max_rows=rows, seed=0,
        lora_rank=4, stop_ids=(stop,),
    )  # fmt: skip
    return {
        "NumPy": LocalPolicy(),
        "transformers": TransformersSampler(settings, log),
        "vLLM": VllmSampler(settings, VllmSettings(home=home), log),
    }


def requests(policy: LocalPolicy, count: int, tokens: int) -> list[SampleRequest]:
    prompts = [policy.renderer.render((Message("user", task),)) for task in TASKS]
    return [
        SampleRequest(prompts[seed % len(prompts)], tokens, MODEL_ITSELF, seed)
        for seed in range(count)
    ]


def difference(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest, nats."""
    return max(
        float(np.abs(np.asarray(one) - np.asarray(other)).max())
        for one, other in zip(ones, others, strict=True)
    )


def gradients(numpy: Learner, ours: Trainer, data: Sequence[Any], loss: LossName) -> float:
    """The cosine of both trainers' gradients."""
    ours.accumulate(list(data), LossSettings(loss))
    numpy.accumulate(list(data), LossSettings(loss))
    assert numpy._gradient is not None
    layout = as_tensors(Parameters(numpy.config, numpy._gradient))
    theirs = torch.cat([torch.tensor(layout[name]).flatten() for name in ours.parameters])
    found = cosine(gradient_of(ours), theirs)
    ours.apply(OptimSettings(0.0))
    numpy.apply(OptimSettings(0.0))
    return found


async def compare(report: Report, count: int, tokens: int, home: Path | None = None) -> None:
    """All pairs; `home`: of vLLM's environments, the user's cache without one."""
    tokenizer = LocalTokenizer(TOKENIZER)
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        model = Path(folder) / "model"
        export(SHIPPED, model)
        ours = Trainer(TrainerSettings(str(model), lora_rank=0, train_device="cpu"))
        numpy = Learner(SHIPPED, tokenizer.digest, tokenizer.end_id, 1)
        drawn: dict[str, list[Sample]] = {}
        async with AsyncExitStack() as stack:
            engines = samplers(model, tokenizer.end_id, count, log, home)
            for engine in engines.values():
                stack.push_async_callback(engine.close)
                await engine.start()
            local = engines["NumPy"]
            assert isinstance(local, LocalPolicy)
            asked = requests(local, count, tokens)
            for name, engine in engines.items():
                drawn[name] = list(await asyncio.gather(*(engine.sample(each) for each in asked)))
        print(f"log-probabilities, largest difference of {count} completions, nats")
        for name, samples in drawn.items():
            data = [
                datum_of(*each, (-1.0) ** number)
                for number, each in enumerate(zip(asked, samples, strict=True))
            ]
            own = [sample.logprobs for sample in samples]
            torch_scores, numpy_scores = ours.score(data, "trained"), numpy.score(data, "trained")
            for pair, found in (
                (f"drawn by {name}, torch's trainer", difference(own, torch_scores)),
                (f"drawn by {name}, NumPy's trainer", difference(own, numpy_scores)),
                (f"of {name}'s tokens, both trainers", difference(torch_scores, numpy_scores)),
            ):
                report.check(pair, found, found <= MOST_NATS, f"<= {MOST_NATS:g}")
        one, other = drawn["NumPy"], drawn["transformers"]
        assert [s.completion_ids for s in one] == [s.completion_ids for s in other]
        found = difference([s.logprobs for s in one], [s.logprobs for s in other])
        report.check("both of these samplers", found, found <= MOST_NATS, f"<= {MOST_NATS:g}")
        print("gradients of both trainers, cosine")
        for loss in get_args(LossName):
            found = gradients(numpy, ours, data, loss)
            report.check(loss, found, found >= LEAST_COSINE, f">= {LEAST_COSINE:g}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--completions", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    report = Report()
    asyncio.run(compare(report, options.completions, options.tokens))
    print(f"wrong: {', '.join(report.wrong)}" if report.wrong else "all is right")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
