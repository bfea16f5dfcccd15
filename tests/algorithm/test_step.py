"""From rollouts to data: rewards, a loss that is a mean however it is cut up, corrections."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.losses import LossSettings, policy_loss
from tbtui.algorithm.segments import Call, Segment, merge
from tbtui.algorithm.step import (
    BatchSettings,
    Datum,
    RewardSettings,
    ScoredTrial,
    divided,
    divisor,
    longest_context,
    reference_kl,
    shaped,
    trial_data,
    truncated_importance,
    with_reference_kl,
)
from tbtui.vocabulary import Normalizer
from tests.algorithm.building import build_data

# Rewards


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0.0), (600, 0.0), (700, 0.125), (800, 0.25), (1000, 0.5), (2000, 0.5)],
)
def test_the_overlong_penalty_rises_over_the_buffer(tokens: int, penalty: float) -> None:
    settings = RewardSettings(overlong_penalty=0.5, overlong_buffer=400)
    assert shaped(1.0, 3, tokens, 1000, settings) == pytest.approx(1.0 - penalty)


def test_every_turn_costs() -> None:
    assert shaped(1.0, 3, 10, 1000, RewardSettings(turn_penalty=0.1)) == pytest.approx(0.7)


@given(st.floats(-1, 1), st.integers(0, 50), st.integers(0, 10_000))
def test_without_penalties_a_reward_is_untouched(reward: float, turns: int, tokens: int) -> None:
    assert shaped(reward, turns, tokens, 4096, RewardSettings()) == reward


def test_the_longest_context_is_that_of_one_call() -> None:
    none = np.zeros(0, np.float32)
    calls = [Call((1, 2, 3), (4,), np.zeros(1, np.float32)), Call((1, 2), (), none)]
    assert longest_context(calls) == 4
    assert longest_context([]) == 0


# Data


def segment(context: int, actions: int) -> Segment:
    mask = np.array([False] * context + [True] * actions)
    return Segment(np.arange(context + actions, dtype=np.int32), mask, mask * np.float32(-0.5))


trials = st.lists(
    st.builds(
        ScoredTrial,
        st.lists(st.builds(segment, st.integers(1, 5), st.integers(0, 5)), max_size=3).map(tuple),
        st.sampled_from([-0.75, -0.25, 0.0, 0.25, 0.5]),
    ),
    max_size=6,
)


def surrogate(data: list[Datum]) -> float:
    """Importance-sampling objective where the policy hasn't moved: ratio 1 everywhere."""
    return sum(float((datum.weights * datum.advantages)[datum.mask].sum()) for datum in data)


@given(trials)
def test_the_loss_is_the_mean_over_action_tokens(batch: list[ScoredTrial]) -> None:
    counted = [(trial.advantage, s.action_tokens) for trial in batch for s in trial.segments]
    total = sum(tokens for _, tokens in counted)
    data = build_data(batch)
    learning = sum(tokens for advantage, tokens in counted if advantage)
    assert sum(int(datum.mask.sum()) for datum in data) == learning
    if total:
        expected = sum(advantage * tokens for advantage, tokens in counted) / total
        assert surrogate(data) == pytest.approx(expected, abs=1e-5)


def test_nothing_to_learn_is_no_data() -> None:
    assert build_data([ScoredTrial((segment(2, 3),), 0.0)]) == []


NORMALIZERS: tuple[Normalizer, ...] = ("token", "sequence", "trial", "sum")
normalizers = st.sampled_from(NORMALIZERS)


def expected_surrogate(batch: list[ScoredTrial], normalizer: Normalizer) -> float:
    """Means of means, straight from the definitions."""
    tokens = [
        (t, [[t.advantage] * s.action_tokens for s in t.segments if s.action_tokens]) for t in batch
    ]
    per_trial = [list(itertools.chain(*segments)) for _, segments in tokens if segments]
    per_segment = [segment for _, segments in tokens for segment in segments]
    flat = [a for trial in per_trial for a in trial]
    match normalizer:
        case "token":
            return float(np.mean(flat)) if flat else 0.0
        case "sequence":
            return float(np.mean([np.mean(s) for s in per_segment])) if per_segment else 0.0
        case "trial":
            return float(np.mean([np.mean(t) for t in per_trial])) if per_trial else 0.0
        case "sum":
            return sum(flat)


@given(trials, normalizers)
def test_every_normalizer_is_its_definition(
    batch: list[ScoredTrial], normalizer: Normalizer
) -> None:
    data = build_data(batch, BatchSettings(normalizer))
    assert surrogate(data) == pytest.approx(expected_surrogate(batch, normalizer), abs=1e-5)


@given(trials, normalizers, st.integers(0, 6), st.booleans())
def test_a_batch_may_be_accumulated_in_parts(
    batch: list[ScoredTrial], normalizer: Normalizer, cut: int, reference: bool
) -> None:
    settings = BatchSettings(normalizer, reference_kl=reference)
    parts = [
        d for part in (batch[:cut], batch[cut:]) for t in part for d in trial_data(t, settings)
    ]
    whole = build_data(batch, settings)
    for one, other in zip(divided(parts, divisor(batch, settings)), whole, strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.tokens, other.tokens)


@given(trials, normalizers, st.permutations(range(6)))
def test_the_order_of_trials_does_not_matter(
    batch: list[ScoredTrial], normalizer: Normalizer, order: list[int]
) -> None:
    settings = BatchSettings(normalizer)
    shuffled = [batch[i] for i in order if i < len(batch)]
    assert divisor(shuffled, settings) == divisor(batch, settings)
    assert surrogate(build_data(shuffled, settings)) == pytest.approx(
        surrogate(build_data(batch, settings)), abs=1e-6
    )


@pytest.mark.parametrize("normalizer", ["token", "trial", "sum"])
def test_merging_turns_changes_no_loss(normalizer: Normalizer) -> None:
    random = np.random.default_rng(0)
    calls, history = [], (1,)
    for _ in range(5):
        drawn = tuple(random.integers(0, 9, 3).tolist())
        calls.append(Call(history, drawn, -random.random(3).astype(np.float32)))
        history = history + drawn + (7, 7)
    merged = ScoredTrial(tuple(merge(calls)), 0.5)
    single = ScoredTrial(tuple(s for c in calls for s in merge([c])), 0.5)
    other = ScoredTrial((segment(2, 4),), -0.25)
    assert (len(merged.segments), len(single.segments)) == (1, 5)
    settings = BatchSettings(normalizer)
    weights = []
    for trial in (merged, single):
        data = build_data([trial, other], settings)
        weights.append(np.concatenate([(d.weights * d.advantages)[d.mask] for d in data]))
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-6)


@given(normalizers)
def test_constant_groups_dampen_the_step_unless_removed(normalizer: Normalizer) -> None:
    learning = ScoredTrial((segment(2, 3),), 0.5)
    solved = ScoredTrial((segment(2, 3),), 0.0, constant=True)
    kept, removed = BatchSettings(normalizer), BatchSettings(normalizer, True)
    assert divisor([learning, solved], removed) == divisor([learning], kept)
    if normalizer != "sum":
        assert divisor([learning, solved], kept) == 2 * divisor([learning], kept)
    assert trial_data(solved, kept) == []
    penalised = BatchSettings(normalizer, reference_kl=True)
    assert len(trial_data(solved, penalised)) == 1
    assert trial_data(solved, BatchSettings(normalizer, True, True)) == []


def test_an_empty_batch_divides_by_one() -> None:
    assert {divisor([], BatchSettings(normalizer)) for normalizer in NORMALIZERS} == {1.0}
    assert build_data([]) == []


# Corrections by the log-probabilities of other weights

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
