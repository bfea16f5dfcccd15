"""Losses: their gradients are exact, and they are what the papers define."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tbtui.algorithm.losses import AnyLoss, LossName, LossSettings, clipped_tokens, policy_loss

Array = npt.NDArray[np.float64]
Inputs = tuple[Array, Array, Array, Array]

LOSSES: tuple[AnyLoss, ...] = (*get_args(LossName), "cross_entropy")
losses = st.builds(
    LossSettings,
    st.sampled_from(LOSSES),
    st.floats(0.01, 0.5),
    st.floats(0.01, 1.0),
    st.floats(0.01, 1.0),
)


def draw_inputs(seed: int, tokens: int = 12, gap: float = 0.3) -> Inputs:
    random = np.random.default_rng(seed)
    old = -random.exponential(1.0, tokens)
    return (
        old + random.normal(0, gap, tokens),
        old,
        random.normal(0, 1, tokens),
        random.uniform(0.1, 1, tokens),
    )


inputs = st.builds(draw_inputs, st.integers(0, 2**32), st.integers(1, 20), st.floats(0.01, 1))


def frozen_surrogate(new: Array, data: Inputs, settings: LossSettings) -> float:
    """The loss as a plain function of `new`, with what has no gradient held at its value.

    Written token by token from the papers' formulas.
    """
    held, old, advantages, weights = data
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    ratio_of_sequence = math.exp(sum(held - old) / len(held))
    total = 0.0
    for now, was, before, a, w in zip(new, held, old, advantages, weights, strict=True):
        match settings.loss:
            case "importance_sampling":
                value = math.exp(now - before) * a
            case "ppo":
                r = math.exp(now - before)
                value = min(r * a, min(max(r, low), high) * a)
            case "cispo":
                value = min(max(math.exp(was - before), low), high) * a * now
            case "gspo":
                s = ratio_of_sequence * math.exp(now - was)
                value = min(s * a, min(max(s, low), high) * a)
            case "dro":
                value = a * now - settings.dro_beta / 2 * (now - before) ** 2
            case "cross_entropy":
                value = a * now
        total -= w * value
    return total


def slope(function: Callable[[Array], float], at: Array) -> Array:
    """Central differences, extrapolated to the fourth order."""
    result = np.empty_like(at)
    for i in range(len(at)):
        unit = np.zeros_like(at)
        unit[i] = 1

        def central(step: float, unit: Array = unit) -> float:
            return (function(at + step * unit) - function(at - step * unit)) / (2 * step)

        result[i] = (4 * central(1e-4) - central(2e-4)) / 3
    return result


def near_a_bound(data: Inputs, settings: LossSettings) -> bool:
    gap = data[0] - data[1]
    gap = np.append(gap, gap.mean())
    bounds = np.log([1 - settings.clip_low, 1 + settings.clip_high])
    return bool((np.abs(gap[:, None] - bounds) < 1e-3).any())


@given(inputs, losses)
def test_the_value_is_the_papers_formula(data: Inputs, settings: LossSettings) -> None:
    loss, _ = policy_loss(*data, settings)
    assert loss == pytest.approx(frozen_surrogate(data[0], data, settings), rel=1e-9, abs=1e-9)


@given(inputs, losses)
def test_the_gradient_is_that_of_finite_differences(data: Inputs, settings: LossSettings) -> None:
    assume(not near_a_bound(data, settings))
    _, gradient = policy_loss(*data, settings)
    expected = slope(lambda new: frozen_surrogate(new, data, settings), data[0])
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


@given(inputs, losses, st.floats(-2, 2))
def test_gspo_of_one_advantage_is_the_sequence_level_objective(
    data: Inputs, settings: LossSettings, advantage: float
) -> None:
    new, old = data[:2]
    settings = dataclasses.replace(settings, loss="gspo")
    assume(not near_a_bound(data, settings))
    count = len(new)
    low, high = 1 - settings.clip_low, 1 + settings.clip_high

    def objective(at: Array) -> float:
        s = math.exp(float((at - old).mean()))
        return -min(s * advantage, min(max(s, low), high) * advantage)

    loss, gradient = policy_loss(
        new, old, np.full(count, advantage), np.full(count, 1 / count), settings
    )
    assert loss == pytest.approx(objective(new), rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(gradient, slope(objective, new), rtol=1e-6, atol=1e-6)


@given(inputs, losses)
def test_at_a_ratio_of_one_all_losses_pull_alike(data: Inputs, settings: LossSettings) -> None:
    _, old, advantages, weights = data
    _, gradient = policy_loss(old, old, advantages, weights, settings)
    np.testing.assert_allclose(gradient, -weights * advantages)
    assert not clipped_tokens(old, old, advantages, settings).any()


@given(inputs, losses, st.permutations(range(20)))
def test_the_order_of_tokens_does_not_matter(
    data: Inputs, settings: LossSettings, order: list[int]
) -> None:
    order = [i for i in order if i < len(data[0])]
    loss, gradient = policy_loss(*data, settings)
    new, old, advantages, weights = (each[order] for each in data)
    shuffled, moved = policy_loss(new, old, advantages, weights, settings)
    assert shuffled == pytest.approx(loss, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(moved, gradient[order], rtol=1e-9, atol=1e-12)


@given(inputs, losses)
def test_no_advantage_no_gradient(data: Inputs, settings: LossSettings) -> None:
    new, old, advantages, weights = data
    assume(settings.loss != "dro")
    _, gradient = policy_loss(new, old, np.zeros_like(advantages), weights, settings)
    assert not gradient.any()


@given(inputs, losses)
def test_clipped_tokens_are_those_whose_gradient_bounds_change(
    data: Inputs, settings: LossSettings
) -> None:
    wide = dataclasses.replace(settings, clip_low=1.0, clip_high=1e9)
    _, bounded = policy_loss(*data, settings)
    _, free = policy_loss(*data, wide)
    new, old, advantages, _ = data
    np.testing.assert_array_equal(
        clipped_tokens(new, old, advantages, settings), ~np.isclose(bounded, free, rtol=1e-12)
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_single_precision_stays_single(loss: AnyLoss) -> None:
    new, old, advantages, weights = (each.astype(np.float32) for each in draw_inputs(1))
    _, gradient = policy_loss(new, old, advantages, weights, LossSettings(loss))
    assert gradient.dtype == np.float32
    _, exact = policy_loss(*draw_inputs(1), LossSettings(loss))
    np.testing.assert_allclose(gradient, exact, rtol=1e-5, atol=1e-6)


def test_a_token_that_is_clipped_one_way_only() -> None:
    new, old = np.log([2.0, 0.5, 2.0, 0.5]), np.zeros(4)
    advantages = np.array([1.0, 1.0, -1.0, -1.0])
    assert clipped_tokens(new, old, advantages, LossSettings("ppo")).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert clipped_tokens(new, old, advantages, LossSettings("cispo")).all()
