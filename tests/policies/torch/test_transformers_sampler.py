"""`sampler=transformers`, through its real process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import until

pytest.importorskip("torch")
pytest.importorskip("peft")

from tbtui.policies.base import (
    MODEL_ITSELF,
    ContextOverflowError,
    Message,
    PolicyError,
    PolicyLostError,
    Sample,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer
from tbtui.policies.torch.sampler_client import TransformersSampler
from tbtui.policies.torch.sampling import SamplerSettings
from tests.policies.torch import tiny_models as tiny
from tests.policies.torch.conftest import Model

pytestmark = pytest.mark.extras

STOP = 1


def settings(model: Path, rank: int = 4) -> SamplerSettings:
    return SamplerSettings(
        model=str(model), dtype="float32", device="cpu", context_limit=tiny.CONTEXT, max_rows=16,
        seed=0, lora_rank=rank, stop_ids=(STOP,),
    )  # fmt: skip


@asynccontextmanager
async def sampler(settings: SamplerSettings) -> AsyncIterator[TransformersSampler]:
    engine = TransformersSampler(settings)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def requests(count: int, shared: int = 40) -> list[SampleRequest]:
    """Requests of many lengths and temperatures, whose prompts share a beginning."""
    rng = np.random.default_rng(7)
    common = rng.integers(2, tiny.VOCABULARY, shared).tolist()
    return [
        SampleRequest(
            prompt_ids=(
                *common[: rng.integers(1, shared + 1)],
                *rng.integers(2, tiny.VOCABULARY, rng.integers(0, 40)).tolist(),
            ),
            max_tokens=int(rng.integers(1, 60)),
            sampling=SamplingParams(float(rng.choice([0.6, 1.0, 1.4]))),
            seed=seed,
        )
        for seed in range(count)
    ]


def check(sample: Sample, request: SampleRequest, model: Path, adapter: Path | None = None) -> None:
    """The log-probabilities are those of one forward of it all."""
    prompt = request.prompt_ids
    expected = tiny.reference_logprobs(
        model, prompt + sample.completion_ids, len(prompt), request.sampling.temperature, adapter
    )
    np.testing.assert_allclose(sample.logprobs, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
async def test_log_probabilities_are_those_of_the_whole_sequence(
    architecture: str, model: Model
) -> None:
    directory, asked = model(architecture), requests(24)
    async with sampler(settings(directory)) as engine:
        drawn = await asyncio.gather(*(engine.sample(request) for request in asked))
    assert sum(sample.cached_tokens or 0 for sample in drawn) > 0
    for sample, request in zip(drawn, asked, strict=True):
        check(sample, request, directory)
        ids = sample.completion_ids
        assert STOP not in ids[:-1]
        assert (sample.stop_reason == "stop") == (ids[-1] == STOP)
        assert sample.stop_reason == "stop" or len(ids) == request.max_tokens
    assert {sample.stop_reason for sample in drawn} == {"stop", "length"}


async def test_a_seed_draws_the_same_alone_and_among_sixteen(model: Model) -> None:
    asked = requests(16)
    async with sampler(settings(model("qwen3"))) as engine:
        together = await asyncio.gather(*(engine.sample(request) for request in asked))
    async with sampler(settings(model("qwen3"))) as engine:
        alone = [await engine.sample(request) for request in asked]
        other = await engine.sample(replace(asked[-1], seed=99, max_tokens=40))
    for one, many in zip(alone, together, strict=True):
        assert one.completion_ids == many.completion_ids
        np.testing.assert_allclose(one.logprobs, many.logprobs, atol=1e-4)
    assert other.completion_ids[:20] != alone[-1].completion_ids[:20]


async def test_what_is_drawn_is_shown_and_counted_before_it_is_whole(model: Model) -> None:
    shown: dict[int, list[int]] = {}

    def asked_for(request: SampleRequest) -> SampleRequest:
        tokens = shown.setdefault(request.seed, [])

        def on_drawn(before: int, ids: tuple[int, ...]) -> None:
            assert before == len(tokens)
            tokens.extend(ids)

        return replace(request, on_drawn=on_drawn)

    asked = [asked_for(request) for request in requests(24)]
    async with sampler(settings(model("qwen3"))) as engine:
        drawn = await asyncio.gather(*(engine.sample(request) for request in asked))
        assert engine.drawn() == sum(len(sample.completion_ids) for sample in drawn)
    for request, sample in zip(asked, drawn, strict=True):
        told = tuple(shown[request.seed])
        assert told == sample.completion_ids[: len(told)]
    assert any(shown.values())


async def test_completions_join_and_leave_while_others_are_drawn(model: Model) -> None:
    directory, asked = model("gemma3"), requests(40)
    async with sampler(settings(directory)) as engine:
        running: list[int] = []

        async def later(index: int, request: SampleRequest) -> Sample:
            await asyncio.sleep(0.01 * index)
            sample = await engine.sample(request)
            running.append(engine.running())
            return sample

        drawn = await asyncio.gather(*(later(*each) for each in enumerate(asked)))
        unwanted = asyncio.create_task(engine.sample(replace(asked[0], max_tokens=90)))
        await asyncio.sleep(0.02)
        unwanted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unwanted
        last = await engine.sample(asked[0])
    assert max(running) <= 16
    assert last.completion_ids == drawn[0].completion_ids
    for sample, request in zip(drawn, asked, strict=True):
        check(sample, request, directory)


async def test_what_has_begun_is_finished_with_its_version(model: Model, tmp_path: Path) -> None:
    directory = model("llama")
    adapters = [tiny.adapter(directory, tmp_path / str(seed), seed) for seed in (1, 2)]
    # A stop token would end some before the next version is there.
    endless = replace(settings(directory), stop_ids=())
    asked = [replace(request, max_tokens=100) for request in requests(9, shared=20)]
    async with sampler(endless) as engine:
        tasks: list[asyncio.Task[Sample]] = []

        async def joined() -> None:
            await until(lambda: engine.running() == len(tasks))

        for version in (0, 1, 2):
            if version:
                published = tmp_path / f"published-{version}"
                shutil.copytree(adapters[version - 1], published)
                await engine.publish(version, published)
                shutil.rmtree(published)
            some = asked[3 * version : 3 * version + 3]
            tasks += [asyncio.create_task(engine.sample(request)) for request in some]
            await joined()
        drawn = await asyncio.gather(*tasks)
    assert [sample.weights_version for sample in drawn] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for sample, request in zip(drawn, asked, strict=True):
        number = sample.weights_version
        check(sample, request, directory, adapters[number - 1] if number else None)


async def test_whole_checkpoints_are_published_without_adapters(
    model: Model, tmp_path: Path
) -> None:
    directory, trained = model("llama"), tiny.make("llama", tmp_path / "trained", seed=4)
    request = requests(1)[0]
    async with sampler(settings(directory, rank=0)) as engine:
        under_way = asyncio.create_task(engine.sample(replace(request, max_tokens=80)))
        await until(engine.running)
        await engine.publish(7, trained)
        before, after = await under_way, await engine.sample(request)
        with pytest.raises(PolicyError, match="can't be loaded"):
            await engine.publish(8, tmp_path / "nothing")
        assert (await engine.sample(request)).weights_version == 7
    assert (before.weights_version, after.weights_version) == (0, 7)
    check(before, request, directory)
    check(after, request, trained)


async def test_no_prompt_is_computed_twice(model: Model) -> None:
    """That of a trial's next turn, and that which siblings ask for at once."""
    first = requests(1)[0]
    common = tuple(np.random.default_rng(1).integers(2, tiny.VOCABULARY, 120).tolist())
    async with sampler(replace(settings(model("qwen3")), stop_ids=())) as engine:
        at_once = await asyncio.gather(
            *(engine.sample(SampleRequest(common, 8, MODEL_ITSELF, seed)) for seed in range(8))
        )
        one = await engine.sample(first)
        history = first.prompt_ids + one.completion_ids
        longer = replace(first, prompt_ids=(*history, 5, 6, 7), max_tokens=4)
        two = await engine.sample(longer)
        siblings = await asyncio.gather(
            *(engine.sample(replace(longer, seed=seed)) for seed in range(4))
        )
    assert sorted(sample.cached_tokens or 0 for sample in at_once) == [0] + [119] * 7
    assert one.cached_tokens == 0
    assert two.cached_tokens == len(history) - 1  # what was drawn last had not been computed
    assert all(each.cached_tokens == len(longer.prompt_ids) - 1 for each in siblings)


async def test_the_context_limit(model: Model) -> None:
    limited = replace(settings(model("llama")), context_limit=64, stop_ids=())
    async with sampler(limited) as engine:
        drawn = await engine.sample(SampleRequest((5,) * 60, 100, MODEL_ITSELF, 0))
        assert (len(drawn.completion_ids), drawn.stop_reason) == (4, "length")
        with pytest.raises(ContextOverflowError, match="the context limit is 64"):
            await engine.sample(SampleRequest((5,) * 64, 1, MODEL_ITSELF, 0))


async def test_a_killed_process_is_a_lost_policy(model: Model) -> None:
    engine = TransformersSampler(replace(settings(model("llama")), stop_ids=()))
    await engine.start()
    try:
        under_way = asyncio.create_task(engine.sample(SampleRequest((5,), 150, MODEL_ITSELF, 0)))
        await until(engine.running)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(PolicyLostError, match=r"killed by SIGKILL \(out of memory\?\)"):
            await under_way
        with pytest.raises(PolicyLostError):
            await engine.sample(SampleRequest((5,), 1, MODEL_ITSELF, 0))
    finally:
        await engine.close()


async def test_close_fails_what_is_in_flight(model: Model) -> None:
    engine = TransformersSampler(replace(settings(model("llama")), stop_ids=()))
    await engine.start()
    under_way = asyncio.create_task(engine.sample(SampleRequest((5,), 150, MODEL_ITSELF, 0)))
    await until(engine.running)
    await engine.close()
    with pytest.raises(PolicyError, match="closed"):
        await under_way
    never = TransformersSampler(settings(model("llama")))
    await never.close()


async def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"nowhere"):
        async with sampler(settings(tmp_path / "nowhere")):
            pass


async def test_the_embedded_model_draws_what_numpy_draws(embedded: Path) -> None:
    stop = LocalTokenizer(TOKENIZER).end_id
    numpy_policy = LocalPolicy()
    await numpy_policy.start()
    try:
        conversation = (Message("user", "List the files of /tmp, please."),)
        prompt = numpy_policy.renderer.render(conversation)
        asked = [
            SampleRequest(prompt, 48, SamplingParams(temperature), seed)
            for seed, temperature in enumerate((0.0, 0.7, 1.0, 1.0, 1.3, 1.0, 1.0, 1.0))
        ]
        theirs = [await numpy_policy.sample(request) for request in asked]
    finally:
        await numpy_policy.close()
    starter = replace(settings(embedded), context_limit=1024, stop_ids=(stop,))
    async with sampler(starter) as engine:
        ours = await asyncio.gather(*(engine.sample(request) for request in asked))
    for one, other in zip(ours, theirs, strict=True):
        assert one.completion_ids == other.completion_ids
        assert one.stop_reason == other.stop_reason
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
