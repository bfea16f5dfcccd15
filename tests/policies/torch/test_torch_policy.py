"""`policy=torch` through its real processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.step import Datum
from tbtui.policies.base import (
    OptimSettings,
    PolicyError,
    PolicyLostError,
)
from tbtui.policies.torch import sampler_client
from tbtui.policies.torch.client import TorchPolicy
from tbtui.policies.torch.settings import TorchSettings
from tests.policies.asking import datum_of, request
from tests.policies.torch.fake_vllm import make_home

pytestmark = [pytest.mark.extras, pytest.mark.timeout(300)]

STEP = OptimSettings(1e-3)


@asynccontextmanager
async def policy_of(model: Path, **changes: Any) -> AsyncIterator[TorchPolicy]:
    settings = TorchSettings(
        str(model), renderer="embedded", train_device="cpu", lora_rank=8, max_rows=8
    )
    policy = TorchPolicy(dataclasses.replace(settings, **changes))
    try:
        await policy.start()
        yield policy
    finally:
        await policy.close()


def started() -> list[psutil.Process]:
    """The processes of policies, without what libraries have started in this one."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.ZombieProcess):
            if "tbtui.policies.torch" in " ".join(child.cmdline()):
                found.append(child)
    return found


async def test_auto_does_without_a_vllm_that_dies_at_start(
    embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_home(tmp_path / "tbtui" / "vllm", "ValueError: No CUDA GPUs are available")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sampler_client, "why_not_vllm", lambda settings: None)
    async with policy_of(embedded, sampler="auto") as policy:
        assert (await policy.sample(request(policy))).completion_ids
        (note,) = [each for each in policy.info.notes if "sampler=auto" in each]
        assert "chose transformers" in note and "No CUDA GPUs are available" in note


async def test_what_is_loaded_is_said_and_a_tokenizer_needs_no_torch(embedded: Path) -> None:
    said: list[str] = []
    policy = TorchPolicy(TorchSettings(str(embedded), train_device="cpu"))
    starting = asyncio.create_task(policy.start())
    try:
        while not starting.done():
            if (doing := policy.status().starting) not in said[-1:]:
                said.append(doing)
            await asyncio.sleep(0)
        await starting
        loading = ["the tokenizer", "the model: what trains", "the model: what samples"]
        assert [each for each in said if each] == [f"loading {what}" for what in loading]
        assert policy.status().starting == ""
    finally:
        await policy.close()
    code = (
        "import sys; from tbtui.policies.chat.make import make_renderer\n"
        f"make_renderer('template', {str(embedded)!r}, 'keep'); print('torch' in sys.modules)\n"
        "import torch"
    )
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert (await done.communicate())[0] == b"False\n"
    assert done.returncode == 0


async def train(policy: TorchPolicy, data: list[Datum]) -> None:
    await policy.accumulate(data, LossSettings())
    await policy.apply(STEP)


@pytest.mark.parametrize("rank", [0, 8])
async def test_what_is_sampled_is_what_is_trained(embedded: Path, rank: int) -> None:
    async with policy_of(embedded, lora_rank=rank) as policy:
        for version in range(3):
            requests = [request(policy, seed) for seed in range(4)]
            drawn = await asyncio.gather(*map(policy.sample, requests))
            assert {each.weights_version for each in drawn} == {version}
            data = [
                datum_of(asked.prompt_ids, each, (-1.0) ** index)
                for index, (asked, each) in enumerate(zip(requests, drawn, strict=True))
            ]
            scored = await policy.score(data, "trained")
            for each, found in zip(drawn, scored, strict=True):
                np.testing.assert_allclose(each.logprobs, found, atol=1e-4)
            reference = await policy.score(data, "reference")
            moved = max(np.abs(a - b).max() for a, b in zip(scored, reference, strict=True))
            assert (moved > 1e-4) == (version > 0)
            await train(policy, data)
            # Handed in without being awaited, and yet in this order.
            both = asyncio.gather(policy.publish(), policy.score(data, "trained"))
            published, _ = await both
            assert published == version + 1
        assert policy.status().completed == 12


async def test_weights_wait_in_a_private_directory_that_goes(embedded: Path) -> None:
    async with policy_of(embedded) as policy:
        root = policy._weights
        assert root is not None
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        asked = request(policy)
        await train(policy, [datum_of(asked.prompt_ids, await policy.sample(asked))])
        await policy.publish()
        assert list(root.iterdir()) == []
        processes = started()
        assert len(processes) == 2
    assert not root.exists()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    with pytest.raises(PolicyError):
        await policy.sample(asked)


async def test_a_killed_trainer_is_a_lost_policy_and_a_new_one_goes_on(
    embedded: Path, tmp_path: Path
) -> None:
    async with policy_of(embedded) as policy:
        asked = request(policy)
        drawn = await policy.sample(asked)
        datum = datum_of(asked.prompt_ids, drawn)
        await train(policy, [datum])
        await policy.save(tmp_path / "kept")
        await train(policy, [datum])
        (expected,) = await policy.score([datum], "trained")
        pid = policy.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PolicyLostError, match="killed by SIGKILL"):
            await policy.accumulate([datum], LossSettings())
    async with policy_of(embedded) as policy:
        await policy.load(tmp_path / "kept")
        again = await policy.sample(asked)
        assert again.weights_version == 1
        await train(policy, [datum])
        (found,) = await policy.score([datum], "trained")
        np.testing.assert_array_equal(found, expected)
    async with policy_of(embedded, checkpoint=tmp_path / "kept") as policy:
        begun = await policy.sample(asked)
        assert begun.weights_version == 0
        np.testing.assert_allclose(begun.logprobs, again.logprobs, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 8])
async def test_what_is_not_trained_has_no_trainer(
    embedded: Path, tmp_path: Path, rank: int
) -> None:
    async with policy_of(embedded, lora_rank=rank) as policy:
        asked = request(policy)
        await train(policy, [datum_of(asked.prompt_ids, await policy.sample(asked))])
        await policy.publish()
        expected = await policy.sample(asked)
        await policy.save(tmp_path / "kept")
    kept = tmp_path / "kept"
    async with policy_of(embedded, lora_rank=rank, checkpoint=kept, trains=False) as policy:
        (sampler,) = started()
        assert (policy.status().pid, policy.status().sampler_pid) == (None, sampler.pid)
        drawn = await policy.sample(asked)
        assert drawn.completion_ids == expected.completion_ids
        np.testing.assert_allclose(drawn.logprobs, expected.logprobs, atol=1e-5)
