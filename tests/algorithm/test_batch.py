"""The data of a step: the loss is a mean over action tokens, however it is cut up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.batch import (
    BatchSettings,
    Normalizer,
    ScoredTrial,
    build_data,
    divided,
    divisor,
    trial_data,
)
from tbtui.algorithm.datum import Datum
from tbtui.algorithm.segments import Call, Segment, merge


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


def test_merged_turns_and_single_turns_give_the_same_loss() -> None:
    calls = [
        Call((1, 2), (3,), np.array([-1], np.float32)),
        Call((1, 2, 3, 4), (5, 6), np.array([-2, -3], np.float32)),
    ]
    merged = build_data([ScoredTrial(tuple(merge(calls)), 0.5)])
    single = build_data([ScoredTrial(tuple(s for c in calls for s in merge([c])), 0.5)])
    assert (len(merged), len(single)) == (1, 2)
    assert surrogate(merged) == pytest.approx(surrogate(single))
    assert sum(len(d.tokens) for d in merged) < sum(len(d.tokens) for d in single)


def test_a_solved_group_dampens_the_step_and_nothing_else() -> None:
    alone = ScoredTrial((segment(2, 3),), 0.5)
    (datum,) = build_data([alone])
    (damped,) = build_data([alone, ScoredTrial((segment(2, 3),), 0.0)])
    np.testing.assert_allclose(damped.weights * 2, datum.weights)


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
