"""What models trained here are drawn from, against the definition; and what ends a completion."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

import torch

from tbtui.policies.base import SampleRequest, SamplingParams
from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer
from tbtui.policies.torch.batch import draw
from tests.policies.definition import CASES, drawn_from, surprising
from tests.policies.torch import tiny_models as tiny
from tests.policies.torch.conftest import Model
from tests.policies.torch.test_transformers_sampler import sampler, settings

pytestmark = pytest.mark.extras

DRAWS = 4000


def test_many_draws_follow_the_distribution() -> None:
    """In one batch with rows of all other kinds."""
    logits = np.random.default_rng(1).normal(0, 2, 60).astype(np.float32)
    params = [*CASES] * DRAWS
    uniforms = np.random.default_rng(2).random(len(params)).tolist()
    rows = torch.from_numpy(logits).expand(len(params), -1)
    tokens, logprobs, of_model = draw(rows, params, uniforms)
    models = np.log(drawn_from(logits.tolist(), SamplingParams()))
    np.testing.assert_allclose(of_model, models[tokens], atol=1e-5)
    for number, sampling in enumerate(CASES):
        mine = slice(number, None, len(CASES))
        expected = np.array(drawn_from(logits.tolist(), sampling))
        counts = np.bincount(tokens[mine], minlength=60)
        assert not surprising(counts.tolist(), expected.tolist()), sampling.text
        np.testing.assert_allclose(logprobs[mine], np.log(expected[tokens[mine]]), atol=1e-5)


async def test_both_log_probabilities_come_from_the_samplers_process(model: Model) -> None:
    directory, prompt = model("qwen3"), tuple(range(2, 30))
    asked = [SampleRequest(prompt, 12, kind, seed) for seed, kind in enumerate(CASES)]
    async with sampler(settings(directory)) as engine:
        drawn = await asyncio.gather(*(engine.sample(request) for request in asked))
    for request, sample in zip(asked, drawn, strict=True):
        ids = prompt + sample.completion_ids
        own = tiny.reference_logprobs(directory, ids, len(prompt), 1.0).numpy()
        if request.sampling.is_model:
            assert sample.model_logprobs is None
            np.testing.assert_allclose(sample.logprobs, own, atol=1e-4)
        else:
            assert sample.model_logprobs is not None
            np.testing.assert_allclose(sample.model_logprobs, own, atol=1e-4)
        if request.sampling.truncates and request.sampling.temperature:
            # Among fewer tokens each has a larger share.
            heat = request.sampling.temperature
            whole = tiny.reference_logprobs(directory, ids, len(prompt), heat).numpy()
            assert (sample.logprobs >= whole - 1e-4).all()


async def test_a_text_ends_a_completion_at_the_token_that_ends_the_text(embedded: Path) -> None:
    tokenizer = LocalTokenizer(TOKENIZER)
    starter = replace(settings(embedded), context_limit=1024, stop_ids=(tokenizer.end_id,))
    prompt = tuple(tokenizer.encode("List the files of /tmp, please."))
    request = SampleRequest(prompt, 60, SamplingParams(), 3)
    async with sampler(starter) as engine:
        whole = await engine.sample(request)
        pieces = tokenizer.pieces(whole.completion_ids)
        said = "".join(pieces)
        # Of two tokens, the second one's first character included.
        stop = (pieces[4] + pieces[5])[: len(pieces[4]) + 1]
        ended = await engine.sample(
            replace(request, sampling=SamplingParams(stop=("\0 never", stop)))
        )
    until = said[: said.index(stop) + len(stop)]
    assert ended.stop_reason == "stop"
    assert ended.completion_ids == whole.completion_ids[: len(ended.completion_ids)]
    written = tokenizer.pieces(ended.completion_ids)
    assert "".join(written).startswith(until)
    assert stop not in "".join(written[:-1])
