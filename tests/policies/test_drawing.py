"""What the embedded policy draws from, against the definition."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.truncation import truncated
from tbtui.policies.base import SampleRequest, SamplingParams
from tbtui.policies.local.model import ModelConfig, Packed, Parameters, Rotary, forward, rms_norm
from tbtui.policies.local.sampling import sample
from tests.policies.definition import CASES, drawn_from, surprising

SMALL = ModelConfig(vocab_size=50, width=32, layers=2, heads=2, feed_forward=48, context_limit=320)
DRAWS = 2000


def model() -> tuple[Parameters, Rotary]:
    parameters = Parameters.initial(SMALL, seed=3)
    parameters.embedding[...] *= 10  # so that the softmax is not flat
    return parameters, Rotary(SMALL)


def logits_after(
    parameters: Parameters, rotary: Rotary, ids: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """[len(ids), vocabulary]: by one pass over all tokens."""
    hidden, _ = forward(parameters, Packed.of([np.array(ids)]), rotary)
    normed = rms_norm(hidden, parameters.final_norm, SMALL.norm_epsilon).out
    return np.asarray(normed @ parameters.embedding.T, np.float64)


@pytest.mark.parametrize("sampling", CASES, ids=lambda each: each.text)
def test_many_draws_follow_the_distribution(sampling: SamplingParams) -> None:
    parameters, rotary = model()
    prompt = (1, 2, 3)
    logits = logits_after(parameters, rotary, prompt)[-1]
    drawn = sample(
        parameters, rotary, [SampleRequest(prompt, 1, sampling, i) for i in range(DRAWS)], stop_id=0
    )
    counts = np.bincount([each.ids[0] for each in drawn], minlength=SMALL.vocab_size)
    assert not surprising(counts.tolist(), drawn_from(logits.tolist(), sampling))


@pytest.mark.parametrize("sampling", CASES, ids=lambda each: each.text)
def test_both_log_probabilities_are_recorded(sampling: SamplingParams) -> None:
    """Rows of several kinds in one batch don't disturb each other."""
    parameters, rotary = model()
    requests = [
        SampleRequest(tuple(range(1, 2 + 7 * i)), 30 - 4 * i, kind, seed=i)
        for i, kind in enumerate([sampling, SamplingParams(), sampling, SamplingParams(top_k=2)])
    ]
    for request, drawn in zip(
        requests, sample(parameters, rotary, requests, stop_id=0), strict=True
    ):
        start = len(request.prompt_ids)
        rows = logits_after(parameters, rotary, (*request.prompt_ids, *drawn.ids))[start - 1 : -1]
        for place, (row, token) in enumerate(zip(rows.tolist(), drawn.ids, strict=True)):
            chance = drawn_from(row, request.sampling)[token]
            assert drawn.logprobs[place] == pytest.approx(math.log(chance), abs=1e-5)
            own = math.log(drawn_from(row, SamplingParams())[token])
            if drawn.model_logprobs is None:
                assert request.sampling.is_model
            else:
                assert drawn.model_logprobs[place] == pytest.approx(own, abs=1e-5)


# On a grid, so that likelihoods are equal where logits are.
LOGITS = st.lists(st.integers(-10_000, 10_000).map(lambda n: n / 1024), min_size=1, max_size=40)
SAMPLING = st.builds(
    SamplingParams,
    temperature=st.floats(0.1, 3),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(0, 50),
    min_p=st.floats(0, 0.99),
)


@given(LOGITS, SAMPLING)
def test_what_is_left_is_what_the_definition_leaves(
    logits: list[float], sampling: SamplingParams
) -> None:
    scaled = np.array(logits, np.float64) / sampling.temperature
    left = truncated(scaled, sampling)
    chances = np.exp(left - left.max())
    chances /= chances.sum()
    np.testing.assert_allclose(chances, drawn_from(logits, sampling), atol=1e-9)
    assert left.max() == scaled.max()  # the likeliest always is


@given(LOGITS, SAMPLING)
def test_the_order_of_the_vocabulary_does_not_matter(
    logits: list[float], sampling: SamplingParams
) -> None:
    distinct = np.array(sorted(set(logits)), np.float64)
    order = np.random.default_rng(0).permutation(len(distinct))
    left = truncated(distinct, sampling)
    np.testing.assert_array_equal(truncated(distinct[order], sampling), left[order])
