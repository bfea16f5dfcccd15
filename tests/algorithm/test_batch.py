"""The data of a step: the loss is a mean over action tokens, however it is cut up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.batch import ScoredTrial, build_data
from tbtui.algorithm.datum import Datum
from tbtui.algorithm.metrics import sampler_trainer_metrics
from tbtui.algorithm.segments import Call, Segment, merge


def segment(context: int, actions: int) -> Segment:
    mask = np.array([False] * context + [True] * actions)
    return Segment(np.arange(context + actions, dtype=np.int32), mask, -mask.astype(np.float32) / 2)


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


def test_the_gap_between_sampler_and_trainer_is_measured() -> None:
    (datum,) = build_data([ScoredTrial((segment(2, 2),), 1.0)])
    metrics = sampler_trainer_metrics([datum], [np.array([-0.5, -0.7], np.float32)])
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(0.1)
    assert metrics["optim/kl_sample_train_v2"] == pytest.approx(0.01)
    assert metrics["optim/surprise"] == pytest.approx(0.5)
