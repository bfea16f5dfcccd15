"""What the sentinel says of a publication, by a probe before and after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tbtui.algorithm.sentinel import Probe, judge

TOLERANCE = 0.01


def probe(
    version: int, sampled: Sequence[float], trained: Sequence[float], tokens: Sequence[int] = (5, 6)
) -> Probe:
    return Probe(
        version, tuple(tokens), np.array(sampled, np.float32), np.array(trained, np.float32)
    )


BEFORE = probe(2, [-1.0, -2.0], [-1.0, -2.0])


def test_a_publication_that_arrived_is_compared_with_the_next_one() -> None:
    verdict = judge(probe(3, [-1.1, -2.1], [-1.1, -2.1]), BEFORE, TOLERANCE)
    assert (verdict.finding, verdict.compared) == (None, True)
    assert verdict.numbers["gap"] == 0
    assert verdict.numbers["sampler_move"] == pytest.approx(0.1)


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_a_sampler_that_keeps_the_old_weights_is_stale(noise: float) -> None:
    # Smaller than the tolerance: the gap alone says nothing.
    verdict = judge(probe(3, [-1.0 + noise, -2.0], [-1.005, -2.005]), BEFORE, TOLERANCE)
    assert verdict.finding is not None
    assert "still draws with version 2, not 3" in verdict.finding.text
    assert verdict.finding.text.endswith("the trainer by 0.005")
    assert not verdict.compared


def test_small_steps_add_up_until_they_can_be_told_from_rounding() -> None:
    small = judge(probe(3, [-1.0, -2.0], [-1.0005, -2.0005]), BEFORE, TOLERANCE)
    assert (small.finding, small.compared) == (None, False)
    assert judge(probe(5, [-1.0, -2.0], [-1.0015, -2.0015]), BEFORE, TOLERANCE).finding


def test_a_sampler_that_differs_from_the_trainer_has_something_else() -> None:
    for sampled in ([-1.5, -2.0], [float("nan"), -2.0]):
        for before in (BEFORE, None):
            verdict = judge(probe(3, sampled, [-1.1, -2.0]), before, TOLERANCE)
            assert verdict.finding is not None
            assert "version 3 is not the trainer's" in verdict.finding.text
            assert "limit 0.01" in verdict.finding.text


def test_other_tokens_are_a_sampler_that_has_moved() -> None:
    verdict = judge(probe(3, [-1.0], [-1.0], tokens=[7]), BEFORE, TOLERANCE)
    assert (verdict.finding, verdict.compared) == (None, True)
    assert "sampler_move" not in verdict.numbers
