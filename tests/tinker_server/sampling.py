"""Sampling requests on the embedded policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tbtui.policies.base import Datum, SampleRequest, SamplingParams
from tbtui.policies.local.client import LocalPolicy
from tests.tinker_server.errors import HttpError
from tests.tinker_server.losses import Floats
from tests.tinker_server.samplers import PrefixCache, Sampler
from tests.tinker_server.wire import prompt_tokens, sample_answer


@dataclass(slots=True)
class SamplingSession:
    """Weights that a sampling client samples from, and what has passed through their cache."""

    sampling_session_id: str
    weights: Path
    cache: PrefixCache = field(default_factory=PrefixCache)
    expired: bool = False


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """One `asample`, checked."""

    prompt: tuple[int, ...]
    max_tokens: int | None
    sampling: SamplingParams
    seed: int
    scores_prompt: bool


def sampling_request(
    content: dict[str, Any], context_limit: int, vocabulary: int, end_id: int
) -> SamplingRequest:
    """Raises `HttpError` 422 for what the embedded policy can't do, 400 for what does not fit."""
    params = content["sampling_params"]
    if params.get("stop") not in (None, [end_id]):
        raise HttpError(422, f"stop must be the end of a turn, {end_id}")
    prompt = tuple(prompt_tokens(content["prompt"]))
    max_tokens = params.get("max_tokens")
    if content.get("num_samples", 1) != 1 or not prompt:
        raise HttpError(422, "a prompt and num_samples=1 are needed")
    if min(prompt) < 0 or max(prompt) >= vocabulary:
        raise HttpError(422, f"the prompt has a token outside of 0 to {vocabulary - 1}")
    if len(prompt) + (max_tokens or 1) > context_limit:
        raise HttpError(
            400,
            f"the prompt's {len(prompt)} tokens and max_tokens {max_tokens or 1} exceed the"
            f" context length of {context_limit}",
        )
    return SamplingRequest(
        prompt=prompt,
        max_tokens=max_tokens,
        sampling=SamplingParams(
            params.get("temperature", 1.0),
            params.get("top_p", 1.0),
            max(0, params.get("top_k", -1)),
        ),
        seed=params.get("seed") or 0,
        scores_prompt=bool(content.get("prompt_logprobs")),
    )


async def draw(request: SamplingRequest, session: SamplingSession, sampler: Sampler) -> bytes:
    """The completion, and the prompt's log-probabilities where they were asked for."""
    if session.expired:
        raise HttpError(404, f"the weights of {session.sampling_session_id} have expired")
    cached = session.cache.hit(request.prompt)
    session.cache.add(request.prompt)
    async with sampler.using(session.weights) as policy:
        room = policy.info.context_limit - len(request.prompt)
        sample = await policy.sample(
            SampleRequest(
                request.prompt, request.max_tokens or room, request.sampling, request.seed
            )
        )
        scores = None
        if request.scores_prompt:
            scores = await _prompt_logprobs(policy, request.prompt)
    session.cache.add((*request.prompt, *sample.completion_ids))
    return sample_answer(sample, cached, scores)


async def _prompt_logprobs(policy: LocalPolicy, prompt: tuple[int, ...]) -> Floats:
    """One for each token but the first, which is NaN."""
    scores = np.full(len(prompt), np.nan, np.float32)
    if len(prompt) > 1:
        nothing = np.zeros(len(prompt), np.float32)
        mask = np.arange(len(prompt)) > 0
        datum = Datum(np.array(prompt, np.int32), mask, nothing, nothing, nothing)
        (scores[1:],) = await policy.score([datum], "trained")
    return scores
