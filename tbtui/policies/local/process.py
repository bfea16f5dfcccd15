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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

from tbtui.ipc import Channel, parent_socket
from tbtui.policies.base import LossName, PolicyError, PolicyInfo
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.messages import (
    Accumulate,
    Apply,
    Load,
    Order,
    Publish,
    Result,
    SampleBatch,
    Save,
    Score,
    Scored,
)
from tbtui.policies.local.tokenizer import LocalTokenizer
from tbtui.policies.policy_process import Failed, FromProcess, Ready, ToProcess, serve_calls

HONOURED = frozenset({"checkpoint", "grad_clip", "importance_cap", "kl_penalty_coef"})
"""Settings that depend on the policy."""


def _perform(learner: Learner, order: Order) -> Result:
    match order:
        case SampleBatch(requests):
            return tuple(learner.sample(requests))
        case Accumulate(data, loss):
            return learner.accumulate(data, loss)
        case Apply(settings):
            return learner.apply(settings)
        case Score(data, weights):
            return Scored(learner.score(data, weights))
        case Publish():
            return learner.publish()
        case Save(directory):
            learner.save(directory)
        case Load(directory):
            learner.load(directory)
    return None


async def _main(arguments: list[str]) -> None:
    sock = parent_socket(arguments)
    channel: Channel[FromProcess[PolicyInfo, Result], ToProcess[Order]] = await Channel.over(sock)
    checkpoint, tokenizer_path, threads = Path(arguments[2]), Path(arguments[3]), int(arguments[4])
    try:
        tokenizer = LocalTokenizer(tokenizer_path)
        learner = Learner(checkpoint, tokenizer.digest, tokenizer.end_id, threads)
    except PolicyError as error:
        await channel.send(Failed(None, str(error)))
        await channel.close()
        return
    info = PolicyInfo(
        name="local",
        model_name=checkpoint.name,
        parameters=learner.config.size(),
        context_limit=learner.config.context_limit,
        losses=get_args(LossName),
        divides_gradient=True,
        honours=HONOURED,
    )
    await channel.send(Ready(info))
    sampler, trainer = ThreadPoolExecutor(1, "sample"), ThreadPoolExecutor(1, "train")
    await serve_calls(
        channel,
        lambda order: _perform(learner, order),
        lambda order: sampler if isinstance(order, SampleBatch) else trainer,
    )
    sampler.shutdown(cancel_futures=True)
    trainer.shutdown(cancel_futures=True)
    await channel.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
