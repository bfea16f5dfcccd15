"""What a step's gradient would have been: exact where it can be, unknown where it can't."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.segments import Call, merge
from tbtui.algorithm.step import BatchSettings, ScoredTrial
from tbtui.algorithm.whatif import RecordedTrial, StepSettings, recomputed, step_effect
from tbtui.vocabulary import LossName
from tests.algorithm.building import build_data


def trial(reward: float | None, tokens: int = 4, gap: float | None = 0.0) -> RecordedTrial:
    """Its two calls extend each other; the trainer's log-probabilities lie `gap` above."""
    logprobs = np.full(tokens, -1, np.float32)
    first = Call((1, 2), (3,) * tokens, logprobs)
    second = Call((1, 2, *(3,) * tokens, 4), (5,) * tokens, logprobs)
    now = None if gap is None else (logprobs + np.float32(gap),) * 2
    return RecordedTrial(reward, (first, second), now)


groups = st.lists(
    st.lists(
        st.builds(trial, st.none() | st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 6)),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)
settings = st.builds(
    StepSettings,
    st.sampled_from(["centred", "std", "leave_one_out", "batch"]),
    st.sampled_from(["token", "sequence", "trial", "sum"]),
    st.builds(LossSettings, st.sampled_from(["ppo", "cispo", "gspo", "dro"])),
    st.integers(1, 3),
    st.booleans(),
)


@given(groups, settings)
def test_the_signal_is_what_the_batch_builder_would_train(
    batch: list[list[RecordedTrial]], chosen: StepSettings
) -> None:
    results = recomputed(batch, chosen)
    effect = step_effect(batch, results, chosen)
    scored = [
        ScoredTrial(tuple(merge(t.calls)), advantage, result.disposition == "constant")
        for group, result in zip(batch, results, strict=True)
        for t, advantage in zip(group, result.advantages, strict=True)
        if advantage is not None
    ]
    data = build_data(
        scored, BatchSettings(chosen.normalizer, chosen.remove_constant_reward_groups)
    )
    signal = sum(float(np.abs(d.weights * d.advantages).sum()) for d in data)
    assert effect.signal == pytest.approx(signal, rel=1e-5, abs=1e-9)
    every = [e for group in effect.groups for e in group]
    assert effect.learning == len(data) == sum(e.trained > 0 for e in every)
    assert sum(e.share for e in every) == pytest.approx(1.0 if data else 0.0)
    assert effect.clip_fraction == 0.0
    left_out = [t.reward is None for group in batch for t in group]
    assert all(e.advantage is None for e, out in zip(every, left_out, strict=True) if out)


def test_clipping_is_counted_where_the_trainer_is_known() -> None:
    batch = [[trial(1.0, gap=1.0), trial(0.0, gap=1.0)]]
    shares: dict[LossName, list[float]] = {
        "ppo": [1.0, 0.0],
        "cispo": [1.0, 1.0],
        "dro": [0.0, 0.0],
    }
    for loss, clipped in shares.items():
        chosen = StepSettings(loss=LossSettings(loss))
        effect = step_effect(batch, recomputed(batch, chosen), chosen)
        assert [e.clip_fraction for e in effect.groups[0]] == clipped
        assert effect.clip_fraction == np.mean(clipped)
    ppo = StepSettings(loss=LossSettings("ppo"))
    effect = step_effect(batch, recomputed(batch, ppo), ppo)
    assert [e.share for e in effect.groups[0]] == [0.0, 1.0]
    assert effect.learning == 2


def test_an_unknown_trainer_is_an_unknown_clip_fraction() -> None:
    batch = [[trial(1.0), trial(0.0, gap=None)]]
    effect = step_effect(batch, recomputed(batch, StepSettings()), StepSettings())
    assert [e.clip_fraction for e in effect.groups[0]] == [0.0, None]
    assert effect.clip_fraction is None
    assert [e.share for e in effect.groups[0]] == [0.5, 0.5]


def test_masked_summaries_have_no_signal() -> None:
    plain = trial(1.0)
    calls = (plain.calls[0], replace(plain.calls[1], summary=True))
    batch = [[replace(plain, calls=calls), trial(0.0)]]
    chosen = StepSettings(normalizer="sum", train_summaries=False)
    effect = step_effect(batch, recomputed(batch, chosen), chosen)
    assert [e.tokens for e in effect.groups[0]] == [4, 8]
    assert [e.share for e in effect.groups[0]] == pytest.approx([1 / 3, 2 / 3])
