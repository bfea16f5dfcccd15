"""`sampler=vllm` with vLLM itself, CPU build; where tbtui has installed it before:

`TBTUI_VLLM_HOME=DIR` names the directory of its environments; the user's cache otherwise. Without
one, nothing here is run: it takes 6 GB and some minutes to install.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from tbtui.paths import cache_dir
from tbtui.policies.base import (
    MODEL_ITSELF,
    PolicyLostError,
    PolicyRefusedError,
    Sample,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.vllm_environment import CPU, vllm_python
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tests.by_hand.agreement import compare
from tests.by_hand.gpu_run import Report
from tests.policies.torch import tiny_models as tiny

HOME = Path(os.environ.get("TBTUI_VLLM_HOME") or cache_dir() / "vllm")
pytestmark = [
    pytest.mark.extras,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (HOME / CPU.name / "installed.json").is_file(), reason="no vLLM here"),
]


def settings(model: Path) -> SamplerSettings:
    return SamplerSettings(
        model=str(model), dtype="float32", device="cpu", context_limit=1024, max_rows=16, seed=0,
        lora_rank=4, stop_ids=(LocalTokenizer(TOKENIZER).end_id,),
    )  # fmt: skip


async def test_adapters_are_published_while_completions_are_under_way(
    embedded: Path, tmp_path: Path
) -> None:
    adapters = [tiny.adapter(embedded, tmp_path / str(seed), seed) for seed in range(1, 6)]
    prompts = [(70, 71, 72, 73, 74, 75, seed + 100) for seed in range(8)]
    with (tmp_path / "log").open("wb") as log:
        engine = VllmSampler(settings(embedded), VllmSettings(home=HOME), log)
        try:
            await engine.start()
            tasks = []
            for version in range(6):
                if version:
                    gone = tmp_path / f"published-{version}"
                    shutil.copytree(adapters[version - 1], gone)
                    await engine.publish(version, gone)
                    shutil.rmtree(gone)
                tasks += [
                    asyncio.create_task(
                        engine.sample(SampleRequest(prompt, 60, SamplingParams(0.8), seed))
                    )
                    for seed, prompt in enumerate(prompts[: 4 if version else 8])
                ]
                await asyncio.sleep(0)
            drawn = await asyncio.gather(*tasks)
            assert engine.server.is_vllm or engine.server.requests
            pid = engine.pid
            assert pid is not None
            group = psutil.Process(pid).children(recursive=True)
            assert group
        finally:
            await engine.close()
    assert not any(each.is_running() and each.status() != "zombie" for each in group)
    versions = [0] * 8 + [version for version in range(1, 6) for _ in range(4)]
    assert [sample.weights_version for sample in drawn] == versions
    asked = prompts + prompts[:4] * 5
    for sample, prompt in zip(drawn, asked, strict=True):
        number = sample.weights_version
        expected = tiny.reference_logprobs(
            embedded, prompt + sample.completion_ids, len(prompt), 0.8,
            adapters[number - 1] if number else None,
        )  # fmt: skip
        np.testing.assert_allclose(sample.logprobs, expected.numpy(), atol=1e-3)
    assert len({sample.completion_ids for sample in drawn[8::4]}) == 5


async def test_its_log_probabilities_are_those_of_the_other_engines() -> None:
    report = Report()
    await compare(report, count=8, tokens=32, home=HOME)
    assert not report.wrong
    assert len(report.figures) >= 14


async def test_a_killed_server_is_a_lost_policy(embedded: Path, tmp_path: Path) -> None:
    engine = VllmSampler(settings(embedded), VllmSettings(home=HOME))
    try:
        await engine.start()
        request = SampleRequest((70,) * 9, 1000, MODEL_ITSELF, 0)
        asked = [replace(request, seed=seed) for seed in range(8)]
        under_way = [asyncio.create_task(engine.sample(each)) for each in asked]
        await asyncio.sleep(0.1)
        assert engine.pid is not None
        for child in psutil.Process(engine.pid).children():
            child.send_signal(signal.SIGKILL)
        # vLLM also stops at the model's own end token, so that one may be over already.
        drawn = await asyncio.gather(*under_way, return_exceptions=True)
        lost = [each for each in drawn if isinstance(each, PolicyLostError)]
        assert lost and len(lost) + sum(isinstance(each, Sample) for each in drawn) == 8
        assert "vLLM killed by SIGKILL" in str(lost[0])
        with pytest.raises(PolicyLostError):
            await engine.publish(1, tmp_path)
    finally:
        await engine.close()


async def test_its_last_lines_are_said_when_it_dies_at_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nonsense"}')
    engine = VllmSampler(settings(tmp_path), VllmSettings(home=HOME))
    with pytest.raises(PolicyRefusedError, match=r"nonsense.*use sampler=transformers"):
        await engine.start()
    assert await vllm_python(CPU, print, HOME)
