"""Sampling requests on the embedded policy."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tbtui.policies.base import Datum, Sample, SampleRequest
from tbtui.policies.local.client import LocalPolicy
from tests.tinker_server.errors import HttpError
from tests.tinker_server.losses import Floats
from tests.tinker_server.samplers import PrefixCache, SamplerPool, Snapshot
from tests.tinker_server.wire import SampleAnswer, prompt_tokens

_SEED_BITS = 63
_NOT_SUPPORTED = (
    "topk_prompt_logprobs",
    "topk_sample_logprobs",
    "target_prompt_logprobs",
    "prompt_alt_tokens_k",
)


@dataclass(slots=True)
class SamplingSession:
    """Weights that a sampling client samples from, and what has passed through their cache."""

    sampling_session_id: str
    base_model: str
    snapshot: Snapshot
    model_path: str | None = None
    cache: PrefixCache = field(default_factory=PrefixCache)
    expired: bool = False


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """One `asample`, checked."""

    prompt: tuple[int, ...]
    count: int
    max_tokens: int | None
    temperature: float
    seed: int | None
    cut_at: frozenset[int]
    """Tokens that end a completion beside the end of a turn."""
    score_last: int | None
    """Prompt tokens to score, from the end; None: none."""


def sampling_request(
    content: dict[str, Any], context_limit: int, vocabulary: int, end_id: int
) -> SamplingRequest:
    """Raises `HttpError` 422 for what the embedded policy can't do, 400 for what does not fit."""
    params = content["sampling_params"]
    for name in _NOT_SUPPORTED:
        if content.get(name):
            raise HttpError(422, f"{name} is not supported")
    if params.get("top_k", -1) != -1 or params.get("top_p", 1) != 1:
        raise HttpError(422, "top_k and top_p are not supported")
    prompt = tuple(prompt_tokens(content["prompt"]))
    max_tokens = params.get("max_tokens")
    count = content.get("num_samples", 1)
    if not prompt or count < 1 or (max_tokens is not None and max_tokens < 1):
        raise HttpError(422, "a prompt, num_samples >= 1 and max_tokens >= 1 are needed")
    if min(prompt) < 0 or max(prompt) >= vocabulary:
        raise HttpError(422, f"the prompt has a token outside of 0 to {vocabulary - 1}")
    if params.get("temperature", 1) < 0:
        raise HttpError(422, "temperature must be >= 0")
    if len(prompt) + (max_tokens or 1) > context_limit:
        raise HttpError(
            400,
            f"the prompt's {len(prompt)} tokens and max_tokens {max_tokens or 1} exceed the"
            f" context length of {context_limit}",
        )
    wanted = content.get("prompt_logprobs_last_n") or len(prompt) - 1
    return SamplingRequest(
        prompt=prompt,
        count=count,
        max_tokens=max_tokens,
        temperature=params.get("temperature", 1.0),
        seed=params.get("seed"),
        cut_at=_stops(params.get("stop"), end_id) - {end_id},
        score_last=wanted if content.get("prompt_logprobs") else None,
    )


def _stops(stop: Any, end_id: int) -> frozenset[int]:
    if stop is None:
        return frozenset({end_id})
    if isinstance(stop, str) or any(isinstance(each, str) for each in stop):
        raise HttpError(422, "stop strings are not supported; give token ids")
    if end_id not in stop:
        raise HttpError(422, f"stop must contain the end of a turn, {end_id}")
    return frozenset(stop)


async def draw(
    request: SamplingRequest, session: SamplingSession, pool: SamplerPool
) -> SampleAnswer:
    """Sample i of a request is drawn with `sample_seed(seed, i)`."""
    if session.expired:
        raise HttpError(404, f"the weights of {session.sampling_session_id} have expired")
    cached = session.cache.hit(request.prompt)
    session.cache.add(request.prompt)
    seed = secrets.randbits(_SEED_BITS) if request.seed is None else request.seed
    async with pool.using(session.snapshot) as policy:
        room = policy.info.context_limit - len(request.prompt)
        drawn = await asyncio.gather(
            *(
                policy.sample(
                    SampleRequest(
                        request.prompt,
                        request.max_tokens or room,
                        request.temperature,
                        sample_seed(seed, index),
                    )
                )
                for index in range(request.count)
            )
        )
        scores = None
        if request.score_last is not None:
            scores = await _prompt_logprobs(policy, request.prompt, request.score_last)
    samples = [_cut(sample, request.cut_at) for sample in drawn]
    for sample in samples:
        session.cache.add((*request.prompt, *sample.completion_ids))
    return SampleAnswer(samples, cached, scores)


def sample_seed(seed: int, index: int) -> int:
    """The first sample is the one that the embedded policy draws with `seed` itself."""
    if not index:
        return seed
    return int(np.random.SeedSequence([seed % (1 << 64), index]).generate_state(1, np.uint64)[0])


def _cut(sample: Sample, cut_at: frozenset[int]) -> Sample:
    for index, token in enumerate(sample.completion_ids):
        if token in cut_at:
            end = index + 1
            return Sample(
                sample.completion_ids[:end], sample.logprobs[:end], "stop", sample.weights_version
            )
    return sample


async def _prompt_logprobs(policy: LocalPolicy, prompt: tuple[int, ...], last: int) -> Floats:
    scores = np.full(len(prompt), np.nan, np.float32)
    if len(prompt) > 1 and last > 0:
        mask = np.ones(len(prompt), np.bool_)
        mask[0] = False
        nothing = np.zeros(len(prompt), np.float32)
        datum = Datum(np.array(prompt, np.int32), mask, nothing, nothing, nothing)
        (found,) = await policy.score([datum], "trained")
        scores[-last:] = found[-last:]
    return scores
