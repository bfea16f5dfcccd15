"""The policy's process: `python -m tbtui.policies.local.process FD CHECKPOINT TOKENIZER THREADS`.

Sampling and everything else run in one thread each: sampling goes on while a gradient is computed,
and everything else is done in the order in which it was asked for. The process leaves when its
channel ends, which is also how it learns of its parent's death.
"""

from __future__ import annotations

import os

# Threads are used over packs of sequences; a BLAS that starts its own would only fight them.
# It reads this once, when numpy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

from tbtui.policies.base import LossName, PolicyInfo
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.sampling import Order, Result, SampleBatch
from tbtui.policies.local.tokenizer import LocalTokenizer
from tbtui.policies.policy_process import Publish, PublishedWeights, carry_out, run_process

type _Perform = Callable[[Order], Result]

HONOURED = frozenset({"checkpoint", "grad_clip", "importance_cap", "kl_penalty_coef"})
"""Settings that depend on the policy."""


def _perform(learner: Learner, order: Order) -> Result:
    match order:
        case SampleBatch(requests):
            return tuple(learner.sample(requests))
        case Publish():
            return PublishedWeights(learner.publish())
        case _:
            return carry_out(learner, order)


def _load(checkpoint: Path, tokenizer_path: Path, threads: int) -> tuple[PolicyInfo, _Perform]:
    tokenizer = LocalTokenizer(tokenizer_path)
    learner = Learner(checkpoint, tokenizer.digest, tokenizer.end_id, threads)
    info = PolicyInfo(
        name="local",
        model_name=checkpoint.name,
        parameters=learner.config.size(),
        context_limit=learner.config.context_limit,
        losses=get_args(LossName),
        divides_gradient=True,
        honours=HONOURED,
    )
    return info, lambda order: _perform(learner, order)


async def _main(arguments: list[str]) -> None:
    checkpoint, tokenizer, threads = Path(arguments[2]), Path(arguments[3]), int(arguments[4])
    with ThreadPoolExecutor(1, "sample") as sampler, ThreadPoolExecutor(1, "train") as trainer:
        await run_process(
            arguments,
            lambda: _load(checkpoint, tokenizer, threads),
            lambda order: sampler if isinstance(order, SampleBatch) else trainer,
        )
        for executor in (sampler, trainer):
            executor.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
