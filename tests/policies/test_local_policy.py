"""The embedded policy through its real process."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tbtui.algorithm.step import Datum
from tbtui.policies.base import (
    MODEL_ITSELF,
    ContextOverflowError,
    LossSettings,
    Message,
    OptimSettings,
    Policy,
    PolicyError,
    PolicyLostError,
    Sample,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.local import client as client_module
from tbtui.policies.local.checkpoint_file import read_checkpoint, write_checkpoint
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.tokenizer import SHIPPED
from tests.policies.asking import datum_of
from tests.waiting import until


@pytest.fixture
async def policy() -> AsyncIterator[LocalPolicy]:
    policy = LocalPolicy()
    await policy.start()
    yield policy
    await policy.close()


def request_for(policy: LocalPolicy, text: str, seed: int, **changes: Any) -> SampleRequest:
    prompt = policy.renderer.render([Message("user", text)])
    request = SampleRequest(prompt, max_tokens=24, sampling=MODEL_ITSELF, seed=seed)
    return dataclasses.replace(request, **changes)


def data_of(requests: Sequence[SampleRequest], samples: Sequence[Sample]) -> list[Datum]:
    return [
        datum_of(request.prompt_ids, drawn, 1.0 if i % 2 else -1.0, 1 / len(drawn.completion_ids))
        for i, (request, drawn) in enumerate(zip(requests, samples, strict=True))
    ]


async def test_samples_train_publish_save_and_load(policy: LocalPolicy, tmp_path: Path) -> None:
    assert policy.info.name == "local"
    assert policy.info.parameters == 770_944
    requests = [request_for(policy, f"Say {i}", seed=i) for i in range(40)]
    samples = await asyncio.gather(*(policy.sample(request) for request in requests))
    assert {drawn.weights_version for drawn in samples} == {0}
    status = policy.status()
    assert (status.in_flight, status.completed, status.activity) == (0, 40, "idle")
    assert status.sampled_tokens == sum(len(drawn.completion_ids) for drawn in samples)
    assert len(status.latencies) == 40

    data = data_of(requests, samples)
    gradient = await policy.accumulate(data, LossSettings())
    for drawn, logprobs in zip(samples, gradient.logprobs, strict=True):
        np.testing.assert_allclose(logprobs, drawn.logprobs, atol=1e-5)
    assert (await policy.apply(OptimSettings(1e-3, grad_clip=0.3))).grad_norm

    # The trained weights are sampled from only once they are published.
    before = await policy.sample(requests[0])
    assert before.completion_ids == samples[0].completion_ids
    assert await policy.publish() == 1
    after = await policy.sample(requests[0])
    assert after.weights_version == 1
    assert not np.array_equal(after.logprobs[:1], before.logprobs[:1])

    await policy.save(tmp_path / "step-1")
    await policy.load(SHIPPED)
    assert (await policy.sample(requests[0])).weights_version == 0
    await policy.load(tmp_path / "step-1")
    again = await policy.sample(requests[0])
    assert again.weights_version == 1
    np.testing.assert_array_equal(again.logprobs, after.logprobs)


async def drawn_data(policy: LocalPolicy, count: int) -> list[Datum]:
    requests = [request_for(policy, f"Say {i}", seed=i) for i in range(count)]
    samples = await asyncio.gather(*(policy.sample(request) for request in requests))
    return data_of(requests, samples)


async def test_orders_are_carried_out_in_the_order_of_the_calls(
    policy: LocalPolicy, tmp_path: Path
) -> None:
    data = await drawn_data(policy, 12)
    settings = OptimSettings(1e-3)
    handed_in = [
        asyncio.ensure_future(order)
        for order in (
            policy.score(data, "trained"),
            policy.accumulate(data[:6], LossSettings()),
            policy.accumulate(data[6:], LossSettings()),
            policy.apply(settings),
            policy.publish(),
            policy.save(tmp_path / "one"),
            policy.accumulate(data, LossSettings()),
            policy.apply(settings),
            policy.score(data, "reference"),
            policy.publish(),
            policy.save(tmp_path / "two"),
        )
    ]
    await asyncio.sleep(0)
    assert policy.status().activity == "training"
    results = await asyncio.gather(*handed_in)
    assert (results[4], results[9]) == (1, 2)
    assert isinstance(results[0], tuple)
    assert isinstance(results[8], tuple)
    for before, reference in zip(results[0], results[8], strict=True):
        np.testing.assert_array_equal(before, reference)
    assert policy.status().activity == "idle"

    # Awaited one by one, the same bits.
    await policy.load(SHIPPED)
    for part in (data[:6], data[6:]):
        await policy.accumulate(part, LossSettings())
    await policy.apply(settings)
    await policy.save(tmp_path / "one again")
    await policy.accumulate(data, LossSettings())
    await policy.apply(settings)
    await policy.save(tmp_path / "two again")
    for name in ("one", "two"):
        first = (tmp_path / name / "policy.npz").read_bytes()
        assert (tmp_path / f"{name} again" / "policy.npz").read_bytes() == first


async def test_sampling_goes_on_while_a_gradient_is_computed(policy: LocalPolicy) -> None:
    data = await drawn_data(policy, 40)
    training = asyncio.ensure_future(policy.accumulate(data * 8, LossSettings()))
    drawn = await policy.sample(request_for(policy, "Say", seed=1, max_tokens=2))
    assert not training.done()
    assert drawn.weights_version == 0
    await training


async def test_temperatures_share_a_batch_and_are_kept_apart(policy: LocalPolicy) -> None:
    hot = [
        request_for(policy, "Say it", seed=7, sampling=SamplingParams(t))
        for t in (0.0, 0.05, 1.0, 3.0)
    ]
    together = await asyncio.gather(*(policy.sample(request) for request in hot))
    alone = [await policy.sample(request) for request in hot]
    for first, second in zip(together, alone, strict=True):
        assert first.completion_ids == second.completion_ids
        np.testing.assert_allclose(first.logprobs, second.logprobs, atol=1e-4)
    assert not together[0].logprobs.any()


async def test_refusals(policy: LocalPolicy, foreign_checkpoint: Path, tmp_path: Path) -> None:
    limit = policy.info.context_limit
    full = request_for(policy, "x", 0, prompt_ids=(5,) * limit)
    with pytest.raises(ContextOverflowError, match=f"{limit} tokens; the context limit is {limit}"):
        await policy.sample(full)
    almost = dataclasses.replace(full, prompt_ids=(5,) * (limit - 2), max_tokens=50)
    assert len((await policy.sample(almost)).completion_ids) <= 2
    with pytest.raises(PolicyError, match="is not a checkpoint of the embedded policy"):
        await policy.load(foreign_checkpoint)
    with pytest.raises(PolicyError, match=r"has no policy\.npz"):
        await policy.load(tmp_path)
    other = dataclasses.replace(read_checkpoint(SHIPPED), tokenizer_digest="0" * 64)
    write_checkpoint(tmp_path / "other", other)
    with pytest.raises(PolicyError, match="another tokenizer"):
        await policy.load(tmp_path / "other")
    data = await drawn_data(policy, 1)
    untrained = dataclasses.replace(data[0], mask=np.zeros_like(data[0].mask))
    with pytest.raises(PolicyError, match="no trained tokens"):
        await policy.accumulate([untrained], LossSettings())
    with pytest.raises(PolicyError, match="a part of the gradient failed"):
        await policy.apply(OptimSettings(1e-4))
    assert await policy.publish() == 0


async def test_a_wrong_checkpoint_fails_the_start(foreign_checkpoint: Path) -> None:
    policy = LocalPolicy(foreign_checkpoint)
    with pytest.raises(PolicyError, match="is not a checkpoint of the embedded policy"):
        await policy.start()


async def test_another_harbor_fails_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def drifted(_: str) -> None:
        raise PolicyError("drift")

    monkeypatch.setattr(client_module, "check_installed_harbor", drifted)
    with pytest.raises(PolicyError, match="drift"):
        await LocalPolicy().start()


async def test_killed_in_the_middle_of_requests(policy: LocalPolicy) -> None:
    pid = policy.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # so that nothing can be answered before the end
    asked = [
        asyncio.ensure_future(policy.sample(request_for(policy, "Say", seed=i))) for i in range(3)
    ]
    await until(lambda: policy.status().running == 3)
    os.kill(pid, signal.SIGKILL)
    for request in asked:
        with pytest.raises(PolicyLostError, match="killed by SIGKILL"):
            await request
    with pytest.raises(PolicyLostError, match="killed by SIGKILL"):
        await policy.publish()


async def test_close_fails_what_is_in_flight_and_ends_the_process() -> None:
    policy = LocalPolicy(max_rows=2)
    await policy.start()
    asked = [
        asyncio.ensure_future(
            policy.sample(
                request_for(policy, "Say", seed=i, max_tokens=900, sampling=SamplingParams(9.0))
            )
        )
        for i in range(4)
    ]
    await until(lambda: policy.status().running == 2)
    assert policy.status().in_flight == 4  # two are being computed, two wait
    pid = policy.status().pid
    await policy.close()
    for request in asked:
        with pytest.raises(PolicyError, match="closed"):
            await request
    with pytest.raises(PolicyError, match="closed"):
        await policy.sample(request_for(policy, "Say", seed=1))
    assert pid is not None
    assert not psutil.pid_exists(pid)


async def test_a_cancelled_request_leaves_the_others_alone(policy: LocalPolicy) -> None:
    asked = [
        asyncio.ensure_future(policy.sample(request_for(policy, "Say", seed=i))) for i in range(3)
    ]
    await asyncio.sleep(0)
    asked[1].cancel()
    first, last = await asyncio.gather(asked[0], asked[2])
    assert first.completion_ids and last.completion_ids
    assert policy.status().in_flight == 0


def test_it_is_a_policy() -> None:
    policy: Policy = LocalPolicy()
    with pytest.raises(PolicyError, match="not been started"):
        _ = policy.info


_PARENT = """
import asyncio, sys
from tbtui.policies.local.client import LocalPolicy

async def main():
    policy = LocalPolicy()
    await policy.start()
    print(policy.status().pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_process_leaves_when_its_parent_dies() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
