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

from tbtui.ipc import Channel, ChannelClosedError, parent_socket
from tbtui.policies.base import LossName, PolicyError, PolicyInfo
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.messages import (
    Accumulate,
    Apply,
    Call,
    Done,
    Failed,
    FromProcess,
    Load,
    Order,
    Publish,
    Ready,
    Result,
    SampleBatch,
    Save,
    Score,
    Scored,
    ToProcess,
)
from tbtui.policies.local.tokenizer import LocalTokenizer

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


def _answer(learner: Learner, call: Call) -> FromProcess:
    try:
        return Done(call.number, _perform(learner, call.order))
    except PolicyError as error:
        return Failed(call.number, str(error))
    except MemoryError:
        return Failed(call.number, "the policy's process has no memory left for this request")


async def _serve(channel: Channel[FromProcess, ToProcess], learner: Learner) -> None:
    loop = asyncio.get_running_loop()
    sampler = ThreadPoolExecutor(1, "sample")
    trainer = ThreadPoolExecutor(1, "train")

    def reply(finished: asyncio.Future[FromProcess]) -> None:
        if finished.cancelled():
            return
        error = finished.exception()
        if error is not None:
            # A defect of ours: nothing here can go on from it, and the parent sees the exit.
            loop.call_exception_handler({"message": "policy call failed", "exception": error})
            os._exit(70)
        try:
            channel.post(finished.result())
        except ChannelClosedError:
            return  # the parent left; the loop below sees it too

    async for call in channel:
        executor = sampler if isinstance(call.order, SampleBatch) else trainer
        loop.run_in_executor(executor, _answer, learner, call).add_done_callback(reply)
    sampler.shutdown(cancel_futures=True)
    trainer.shutdown(cancel_futures=True)


async def _main(arguments: list[str]) -> None:
    channel: Channel[FromProcess, ToProcess] = await Channel.over(parent_socket(arguments))
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
    await _serve(channel, learner)
    await channel.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
