"""Corrections of a batch's data by other weights' log-probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.correction import reference_kl, truncated_importance, with_reference_kl
from tbtui.algorithm.datum import Datum
from tbtui.algorithm.losses import LossSettings, policy_loss

Array = npt.NDArray[np.float32]


def draw(seed: int, sizes: list[int]) -> tuple[list[Datum], list[Array]]:
    """Data of so many trained tokens each, and another policy's log-probabilities of them."""
    random = np.random.default_rng(seed)
    data = []
    for size in sizes:
        mask = np.array([False] * 2 + [True, False] * size)
        values = [random.normal(-1, 1, len(mask)).astype(np.float32) * mask for _ in range(3)]
        data.append(Datum(np.arange(len(mask), dtype=np.int32), mask, *values))
    return data, [random.normal(-1, 1, size).astype(np.float32) for size in sizes]


cases = st.builds(draw, st.integers(0, 2**32), st.lists(st.integers(1, 6), min_size=1, max_size=5))
Case = tuple[list[Datum], list[Array]]


@given(cases, st.floats(0.01, 2))
def test_the_reference_penalty_is_centred_on_the_batch(case: Case, coefficient: float) -> None:
    data, reference = case
    gaps = [
        [float(s) - float(r) for s, r in zip(d.logprobs[d.mask], other, strict=True)]
        for d, other in zip(data, reference, strict=True)
    ]
    mean = sum(map(sum, gaps)) / sum(map(len, gaps))
    assert reference_kl(data, reference) == pytest.approx(mean, abs=1e-6)
    penalised = with_reference_kl(data, reference, coefficient)
    shift = 0.0
    for before, after, gap in zip(data, penalised, gaps, strict=True):
        expected = [
            float(a) + coefficient * (mean - g)
            for a, g in zip(before.advantages[before.mask], gap, strict=True)
        ]
        assert after.advantages[after.mask] == pytest.approx(expected, abs=1e-5)
        assert not after.advantages[~after.mask].any()
        shift += float((after.advantages - before.advantages).sum())
    assert shift == pytest.approx(0, abs=1e-4)


@given(cases)
def test_a_policy_at_its_reference_is_not_penalised(case: Case) -> None:
    data, _ = case
    same = [d.logprobs[d.mask] for d in data]
    for before, after in zip(data, with_reference_kl(data, same, 1.0), strict=True):
        np.testing.assert_array_equal(before.advantages, after.advantages)
    assert reference_kl([], []) == 0.0
    assert with_reference_kl([], [], 1.0) == []


@given(cases)
def test_a_penalty_lowers_what_the_reference_would_not_have_said(case: Case) -> None:
    data, reference = case
    first = with_reference_kl(data, reference, 1.0)[0]
    moved = (first.advantages - data[0].advantages)[first.mask]
    gap = data[0].logprobs[first.mask] - reference[0]
    assert np.argmin(moved) == np.argmax(gap)


@given(cases, st.floats(0.1, 5))
def test_truncated_importance_is_its_definition(case: Case, cap: float) -> None:
    data, trainer = case
    for before, after, now in zip(
        data, truncated_importance(data, trainer, cap), trainer, strict=True
    ):
        mask = before.mask
        ratio = np.minimum(np.exp(now.astype(np.float64) - before.logprobs[mask]), cap)
        np.testing.assert_allclose(
            after.weights[mask], before.weights[mask] * ratio, rtol=1e-4, atol=1e-6
        )
        np.testing.assert_array_equal(after.logprobs[mask], now)
        np.testing.assert_array_equal(after.logprobs[~mask], 0)


@given(cases)
def test_without_truncation_importance_sampling_is_as_before(case: Case) -> None:
    """The trainer's ratio to the sampler times the new weights' to the trainer is the whole."""
    data, trainer = case
    random = np.random.default_rng(0)
    settings = LossSettings("importance_sampling")
    corrected = truncated_importance(data, trainer, 1e6)
    for plain, fixed in zip(data, corrected, strict=True):
        mask = plain.mask
        new = random.normal(-1, 1, int(mask.sum())).astype(np.float32)
        losses = [
            policy_loss(new, d.logprobs[mask], d.advantages[mask], d.weights[mask], settings)
            for d in (plain, fixed)
        ]
        assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-3, abs=1e-4)
        np.testing.assert_allclose(losses[0][1], losses[1][1], rtol=1e-3, atol=1e-5)


def test_a_huge_gap_is_truncated_and_not_infinite() -> None:
    (datum,), _ = draw(0, [1])
    with np.errstate(all="raise"):
        (after,) = truncated_importance([datum], [np.array([500.0], np.float32)], 2.0)
    np.testing.assert_allclose(after.weights, datum.weights * 2, rtol=1e-6)
    with pytest.raises(ValueError, match="must be positive"):
        truncated_importance([datum], [np.zeros(1, np.float32)], 0.0)
