"""`sampler=vllm` with a fake server, started and supervised as vLLM is."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tbtui.policies.base import (
    MODEL_ITSELF,
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
    Sample,
    SampleRequest,
)
from tbtui.policies.torch.sampler_client import make_sampler
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tests.policies.torch.fake_vllm import BASE_TOKEN, make_home

pytestmark = pytest.mark.slow
MODEL = Path(__file__).parent / "model_without_weights"
"""Whose size is not known: the server is given the memory that such a model gets."""
SETTINGS = SamplerSettings(
    model=str(MODEL), dtype="float32", device="cpu", context_limit=64, max_rows=4, seed=0,
    lora_rank=4, stop_ids=(1,),
)  # fmt: skip
REQUEST = SampleRequest((5, 6), 3, MODEL_ITSELF, 0)


def adapter(directory: Path, number: int) -> Path:
    directory.mkdir()
    (directory / "adapter_config.json").write_text(json.dumps({"number": number}))
    return directory


async def test_versions_are_published_as_adapters_and_unloaded_when_unused(tmp_path: Path) -> None:
    engine = VllmSampler(SETTINGS, VllmSettings(home=make_home(tmp_path / "home")))
    try:
        await engine.start()
        assert (await engine.sample(REQUEST)).completion_ids == (BASE_TOKEN,) * 3
        drawn: list[Sample] = []
        for version in (0, 1, 2, 2):  # a version may be published again, after a checkpoint
            weights = adapter(tmp_path / "weights", 10 + version)
            await engine.publish(version, weights)
            shutil.rmtree(weights)
            drawn.append(await engine.sample(REQUEST))
        assert [sample.weights_version for sample in drawn] == [0, 1, 2, 2]
        assert [sample.completion_ids[0] for sample in drawn] == [10, 11, 12, 12]
        with pytest.raises(PolicyError, match="version 3 of the adapter can't be read"):
            await engine.publish(3, tmp_path / "nothing")
        assert (await engine.sample(REQUEST)).weights_version == 2
        assert engine.server.requests[0].completed == 7  # one of them at the start
    finally:
        await engine.close()


async def test_a_killed_server_is_a_lost_policy_of_the_fake(tmp_path: Path) -> None:
    engine = VllmSampler(SETTINGS, VllmSettings(home=make_home(tmp_path / "home")))
    try:
        await engine.start()
        assert engine.pid is not None
        (server,) = psutil.Process(engine.pid).children()
        server.send_signal(signal.SIGKILL)
        with pytest.raises(PolicyLostError, match="vLLM killed by SIGKILL"):
            while True:
                await engine.sample(REQUEST)
    finally:
        await engine.close()


async def test_the_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.policies.torch.test_vllm_sampler import *\n"
        "async def main():\n"
        f"    e = VllmSampler(SETTINGS, VllmSettings(home=Path({str(tmp_path / 'home')!r})))\n"
        "    await e.start()\n"
        "    print(e.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    make_home(tmp_path / "home")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    supervisor = psutil.Process(int(await parent.stdout.readline()))
    family = [supervisor, *supervisor.children(recursive=True)]
    assert len(family) > 1
    parent.kill()
    await parent.wait()
    _, left = await asyncio.to_thread(psutil.wait_procs, family, 20)
    assert not left


async def test_whole_checkpoints_are_refused(tmp_path: Path) -> None:
    engine = VllmSampler(replace(SETTINGS, lora_rank=0), VllmSettings(home=tmp_path))
    with pytest.raises(PolicyRefusedError, match="lora_rank=0 trains all weights"):
        await engine.start()


def test_auto_remarks_on_a_choice_that_costs_alone() -> None:
    cpu, notes = make_sampler("auto", SETTINGS, VllmSettings())
    assert (type(cpu).__name__, (*notes, *cpu.notes)) == ("TransformersSampler", ())
    cuda = replace(SETTINGS, device="cuda")
    chosen, notes = make_sampler("auto", cuda, VllmSettings())
    assert isinstance(chosen, VllmSampler) and notes == ()
    _, notes = make_sampler("auto", replace(cuda, lora_rank=0), VllmSettings())
    assert "sampler=auto chose transformers" in notes[0]
