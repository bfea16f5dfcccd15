"""`policy=torch` through its real processes, and through the command line."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import stat
import subprocess
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
from tbtui.journal.events import ResourcesMeasured
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import (
    Message,
    OptimSettings,
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
    Sample,
    SampleRequest,
)
from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tbtui.policies.torch import sampler_client
from tbtui.policies.torch.client import TorchPolicy
from tbtui.policies.torch.settings import TorchSettings
from tests.policies.torch.fake_vllm import make_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEP = OptimSettings(1e-3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("embedded")
    export(SHIPPED, directory)
    return directory


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


def request_for(policy: TorchPolicy, seed: int = 0) -> SampleRequest:
    prompt = policy.renderer.render([Message("user", "Create a file")])
    return SampleRequest(prompt, max_tokens=24, temperature=1.0, seed=seed)


def datum_of(request: SampleRequest, drawn: Sample, advantage: float) -> Datum:
    prompt, length = len(request.prompt_ids), len(request.prompt_ids) + len(drawn.completion_ids)
    mask = np.arange(length) >= prompt
    logprobs = np.zeros(length, np.float32)
    logprobs[prompt:] = drawn.logprobs
    return Datum(
        np.array([*request.prompt_ids, *drawn.completion_ids], np.int32),
        mask,
        logprobs,
        np.full(length, advantage, np.float32),
        np.ones(length, np.float32),
    )


@pytest.mark.parametrize("sampler", ["auto", "vllm"])
async def test_auto_does_without_a_vllm_that_dies_at_start(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    make_home(tmp_path / "tbtui" / "vllm", "ValueError: No CUDA GPUs are available")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sampler_client, "why_not_vllm", lambda settings: None)
    if sampler == "vllm":
        with pytest.raises(PolicyRefusedError, match=r"exit status 3.*use sampler=transformers"):
            async with policy_of(model, sampler=sampler):
                raise AssertionError("it has started")
        return
    async with policy_of(model, sampler=sampler) as policy:
        assert (await policy.sample(request_for(policy))).completion_ids
        (note,) = [each for each in policy.info.notes if "sampler=auto" in each]
        assert "chose transformers" in note and "No CUDA GPUs are available" in note


async def train(policy: TorchPolicy, data: list[Datum]) -> None:
    await policy.accumulate(data, LossSettings())
    await policy.apply(STEP)


@pytest.mark.parametrize("rank", [0, 8])
async def test_what_is_sampled_is_what_is_trained(model: Path, rank: int) -> None:
    async with policy_of(model, lora_rank=rank) as policy:
        for version in range(3):
            requests = [request_for(policy, seed) for seed in range(4)]
            drawn = await asyncio.gather(*map(policy.sample, requests))
            assert {each.weights_version for each in drawn} == {version}
            data = [
                datum_of(request, each, (-1.0) ** index)
                for index, (request, each) in enumerate(zip(requests, drawn, strict=True))
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


async def test_weights_wait_in_a_private_directory_that_goes(model: Path) -> None:
    async with policy_of(model) as policy:
        root = policy._weights
        assert root is not None
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        request = request_for(policy)
        await train(policy, [datum_of(request, await policy.sample(request), 1.0)])
        await policy.publish()
        assert list(root.iterdir()) == []
        processes = psutil.Process().children(recursive=True)
        assert len(processes) >= 2
    assert not root.exists()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    with pytest.raises(PolicyError):
        await policy.sample(request)


async def test_a_killed_trainer_is_a_lost_policy_and_a_new_one_goes_on(
    model: Path, tmp_path: Path
) -> None:
    async with policy_of(model) as policy:
        request = request_for(policy)
        drawn = await policy.sample(request)
        datum = datum_of(request, drawn, 1.0)
        await train(policy, [datum])
        await policy.save(tmp_path / "kept")
        await train(policy, [datum])
        (expected,) = await policy.score([datum], "trained")
        pid = policy.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PolicyLostError, match="killed by SIGKILL"):
            await policy.accumulate([datum], LossSettings())
    async with policy_of(model) as policy:
        await policy.load(tmp_path / "kept")
        again = await policy.sample(request)
        assert again.weights_version == 1
        await train(policy, [datum])
        (found,) = await policy.score([datum], "trained")
        np.testing.assert_array_equal(found, expected)
    async with policy_of(model, checkpoint=tmp_path / "kept") as policy:
        begun = await policy.sample(request)
        assert begun.weights_version == 0
        np.testing.assert_allclose(begun.logprobs, again.logprobs, atol=1e-5)


async def test_a_model_that_can_not_be_had_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefusedError, match="there is no such directory"):
        async with policy_of(tmp_path / "none"):
            pass


def tbtui(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tbtui", *arguments],
        capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
    )  # fmt: skip


@pytest.mark.parametrize("rank", [0, 16])
def test_a_run_trains_and_is_resumed(model: Path, tmp_path: Path, rank: int) -> None:
    settings = (
        f"model_name={model}", "renderer=embedded", f"lora_rank={rank}", "train_device=cpu",
        "batch_size=2", "group_size=4", "eval_every=0", "tasks=copy-*", "eval_tasks=copy-01",
        "save_every=1",
        "environment_type=sandbox", f"logs_dir={tmp_path}", "run_name=a",
    )  # fmt: skip
    done = tbtui("run", "--no-ui", *settings, "max_steps=2", state=tmp_path / "state")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "step    2/2" in done.stdout
    assert "sampler_mismatch" not in done.stdout
    measured = [
        event.processes
        for entry in JournalReader(RunDirectory(tmp_path / "a")).each(["resources_measured"])
        if isinstance(event := entry.event, ResourcesMeasured)
    ]
    pids = {process.role: process.pid for each in measured for process in each}
    assert {"trainer", "sampler"} <= pids.keys()
    assert pids["trainer"] != pids["sampler"]
    assert (tmp_path / "a/checkpoints/step-000002/policy.safetensors").is_file()
    again = tbtui("run", "--no-ui", "--resume", str(tmp_path / "a"), "max_steps=3",
                  state=tmp_path / "state")  # fmt: skip
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
    assert "step    3/3" in again.stdout
    evaluated = tbtui("eval", str(tmp_path / "a"), "--no-ui", state=tmp_path / "state")
    assert evaluated.returncode == 0, evaluated.stdout[-2000:] + evaluated.stderr[-2000:]


def test_a_model_that_can_not_be_had_ends_with_one_line(tmp_path: Path) -> None:
    done = tbtui(
        "run", "--no-ui", "policy=torch", f"model_name={tmp_path}/none", f"logs_dir={tmp_path}",
        "renderer=embedded", state=tmp_path / "state",
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no such directory" in done.stderr.splitlines()[-1]
