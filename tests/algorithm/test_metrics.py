from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tbtui.algorithm.advantages import advantages
from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.segments import Call
from tbtui.algorithm.step import Datum
from tbtui.engines.grpo.metrics import (
    clip_metrics,
    group_metrics,
    sampler_trainer_metrics,
    staleness_metrics,
)
from tbtui.vocabulary import LossName


def datum(*advantages_: float) -> Datum:
    """Each token was drawn with probability exp(-0.5)."""
    mask = np.array([False, *([True] * len(advantages_))])
    values = np.array([0, *advantages_], np.float32)
    tokens = np.arange(len(mask), dtype=np.int32)
    return Datum(tokens, mask, mask * np.float32(-0.5), values, mask.astype(np.float32))


def test_the_gap_between_sampler_and_trainer_is_measured() -> None:
    metrics = sampler_trainer_metrics([datum(1, 1)], [np.array([-0.5, -0.7], np.float32)])
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(0.1)
    assert metrics["optim/kl_sample_train_v2"] == pytest.approx(0.01)
    assert metrics["optim/max_logprob_gap"] == pytest.approx(0.2)
    assert metrics["optim/neg_logprob"] == pytest.approx(0.5)


def test_a_gap_is_measured_where_the_sampler_gives_the_models_log_probability() -> None:
    known = replace(datum(1, 1), logprobs=np.array([0, -0.5, np.nan], np.float32))
    metrics = sampler_trainer_metrics([known], [np.array([-0.6, -0.7], np.float32)])
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(0.1)
    assert metrics["optim/max_logprob_gap"] == pytest.approx(0.1)
    assert metrics["optim/neg_logprob"] == pytest.approx(0.6)
    nothing = replace(known, logprobs=np.full(3, np.nan, np.float32))
    metrics = sampler_trainer_metrics([nothing], [np.array([-0.6, -0.7], np.float32)])
    assert metrics == {"optim/neg_logprob": pytest.approx(0.65)}


def test_the_clip_fraction_is_that_of_the_loss() -> None:
    data = [datum(1, -1), datum(1, 1)]
    up = np.array([0.5, 0.5], np.float32)
    now = [np.array([-0.5, -0.5], np.float32) + up, np.array([-0.5, 0.0], np.float32)]
    ratios_above: dict[LossName, float] = {
        "ppo": 2 / 4,
        "cispo": 3 / 4,
        "importance_sampling": 0.0,
        "dro": 0.0,
    }
    for loss, fraction in ratios_above.items():
        metrics = clip_metrics(data, now, LossSettings(loss))
        assert metrics == {"optim/clip_fraction": pytest.approx(fraction)}
    # The first sequence's ratio is 1.65, the second's 1.28.
    gspo = clip_metrics(data, now, LossSettings("gspo", clip_high=0.3))
    assert gspo == {"optim/clip_fraction": pytest.approx(1 / 4)}


def test_staleness_counts_tokens() -> None:
    def call(tokens: int, version: int) -> Call:
        return Call((1,), (2,) * tokens, np.zeros(tokens, np.float32), version)

    metrics = staleness_metrics([(0, 6), (2, 2), (5, 0)])
    assert metrics == {
        "async/staleness_mean": 0.5,
        "async/staleness_max": 2.0,
        "async/staleness_min": 0.0,
    }


def test_groups_are_counted_by_what_they_can_teach() -> None:
    groups: list[list[float | None]] = [[1, 1], [0, 0], [0, 0], [1, 0], [None, 1]]
    metrics = group_metrics(advantages(groups, "centred", 2))
    assert metrics == {
        "env/all/by_group/frac_mixed": 0.2,
        "env/all/by_group/frac_all_good": 0.2,
        "env/all/by_group/frac_all_bad": 0.4,
        "env/all/by_group/frac_constant": 0.6,
        "env/all/by_group/frac_short": 0.2,
    }


def test_nothing_measured_is_no_number() -> None:
    assert sampler_trainer_metrics([], []) == {}
    assert clip_metrics([], [], LossSettings()) == {}
    assert staleness_metrics([]) == {}
    assert group_metrics([]) == {}
