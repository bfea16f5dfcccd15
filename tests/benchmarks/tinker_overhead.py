"""What our layer adds to a sampling call of the Tinker SDK, with many calls at once.

    python -m tests.benchmarks.tinker_overhead [--at-once 64] [--prompt 900] [--rounds 10]

The SDK's `SamplingClient.sample` is replaced by one that answers after 50 ms from a thread of its
own, as the genuine one does, so that neither a server nor the network is measured. The same calls
are made through the bare client and through the policy, in turn. At the end of a wait all calls
come back at once, so the seconds of a call hold its waiting for its turn among the others.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import tinker
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture

from tbtui.policies.base import SampleRequest
from tbtui.policies.tinker.policy import TinkerPolicy
from tbtui.policies.tinker.training_run import TinkerSettings
from tests.tinker_server.server import serving

COMPLETION = 64
WAIT_SEC = 0.05
CALLS = 8

Call = Callable[[SampleRequest], Awaitable[object]]


class Answers:
    """In place of the SDK's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def sample(
        self, prompt: tinker.ModelInput, num_samples: int, parameters: tinker.SamplingParams
    ) -> AwaitableConcurrentFuture[tinker.SampleResponse]:
        return AwaitableConcurrentFuture(
            asyncio.run_coroutine_threadsafe(self._answer(), self._loop)
        )

    async def _answer(self) -> tinker.SampleResponse:
        await asyncio.sleep(WAIT_SEC)
        sequence = tinker.SampledSequence(
            stop_reason="length",
            sequence_id="",
            tokens_np=np.arange(COMPLETION, dtype=np.int32),
            logprobs_np=np.full(COMPLETION, -1, np.float32),
        )
        return tinker.SampleResponse([sequence])


async def main(at_once: int, prompt: int, rounds: int) -> None:
    os.environ["TINKER_API_KEY"] = "tml-benchmark"
    os.environ["TINKER_TELEMETRY"] = "0"
    answers = Answers()
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as log:
        async with serving(state_dir=Path(directory), sampler_processes=1) as server:
            policy = TinkerPolicy(
                TinkerSettings("starter", base_url=server.url, renderer="embedded"), log
            )
            try:
                await policy.start()
                stop = list(policy.renderer.stop_ids)

                async def bare(request: SampleRequest) -> object:
                    answer = await answers.sample(
                        tinker.ModelInput.from_ints(list(request.prompt_ids)),
                        1,
                        tinker.SamplingParams(
                            max_tokens=request.max_tokens,
                            seed=request.seed,
                            stop=stop,
                            temperature=request.temperature,
                        ),
                    )
                    return answer.sequences[0].tokens, answer.sequences[0].logprobs_np

                with patch.object(tinker.SamplingClient, "sample", _method(answers)):
                    await compare(bare, policy.sample, at_once, prompt, rounds)
            finally:
                await policy.close()


def _method(answers: Answers) -> Callable[..., AwaitableConcurrentFuture[tinker.SampleResponse]]:
    def sample(
        _: tinker.SamplingClient,
        prompt: tinker.ModelInput,
        num_samples: int,
        parameters: tinker.SamplingParams,
    ) -> AwaitableConcurrentFuture[tinker.SampleResponse]:
        return answers.sample(prompt, num_samples, parameters)

    return sample


async def compare(bare: Call, ours: Call, at_once: int, prompt: int, rounds: int) -> None:
    ids = tuple(token % 1000 for token in range(prompt))
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    for turn in range(rounds + 1):
        for name, call in (("bare", bare), ("ours", ours)):
            measured = await _round(call, ids, at_once)
            if turn:  # the first one warms up
                taken[name].append(measured)
    medians = {name: np.median(np.array(each), axis=0) * 1e3 for name, each in taken.items()}
    for name, (call_ms, cpu_ms) in medians.items():
        print(f"{name}: {call_ms:6.2f} ms a call, {cpu_ms:6.3f} ms of the processor")
    extra = statistics.median(
        after[0] - before[0] for before, after in zip(taken["bare"], taken["ours"], strict=True)
    )
    print(
        f"our layer adds {extra * 1e3:.2f} ms to a call with {at_once} at once, and"
        f" {medians['ours'][1] - medians['bare'][1]:.3f} ms of the processor"
    )


async def _round(call: Call, ids: tuple[int, ...], at_once: int) -> tuple[float, float]:
    """Mean seconds of a call, and of the processor, over `at_once` callers."""
    taken: list[float] = []

    async def caller(number: int) -> None:
        for turn in range(CALLS):
            began = time.perf_counter()
            await call(SampleRequest(ids, COMPLETION, 1.0, number * CALLS + turn))
            taken.append(time.perf_counter() - began)

    before = time.process_time()
    await asyncio.gather(*map(caller, range(at_once)))
    return statistics.fmean(taken), (time.process_time() - before) / len(taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=900, help="tokens")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    asyncio.run(main(given.at_once, given.prompt, given.rounds))
