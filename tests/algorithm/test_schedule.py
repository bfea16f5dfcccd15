from __future__ import annotations

import pytest

from tbtui.engines.grpo.plan import learning_rate
from tbtui.journal.figures import total_steps
from tbtui.vocabulary import Schedule


def test_a_linear_rate_falls_in_equal_parts_and_never_to_nothing() -> None:
    rates = [learning_rate(4.0, "linear", step, 4) for step in range(1, 5)]
    assert rates == pytest.approx([4.0, 3.0, 2.0, 1.0])


def test_a_constant_rate_stays() -> None:
    assert {learning_rate(4.0, "constant", step, 4) for step in range(1, 5)} == {4.0}


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_warm_up_rises_to_the_base_and_no_step_learns_nothing(schedule: Schedule) -> None:
    rates = [learning_rate(4.0, schedule, step, 12, warmup_steps=3) for step in range(1, 13)]
    assert rates[:4] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert max(rates) == rates[3]
    assert min(rates) > 0
    assert rates[3:] == sorted(rates[3:], reverse=True)


def test_a_cosine_is_halfway_in_the_middle() -> None:
    assert learning_rate(4.0, "cosine", 1, 8) == 4.0
    assert learning_rate(4.0, "cosine", 5, 8) == pytest.approx(2.0)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_step_beyond_the_last_has_a_rate_too(schedule: Schedule) -> None:
    assert 0 < learning_rate(4.0, schedule, 20, 10) <= 4.0
    assert 0 < learning_rate(4.0, schedule, 3, 2, warmup_steps=5) < 4.0


def test_steps_of_epochs() -> None:
    assert total_steps(40, None, 10, 4) == 40
    assert total_steps(None, 2, 10, 4) == 5
    assert total_steps(None, 1, 10, 4) == 3
    assert total_steps(2, 2, 10, 4) == 2
    with pytest.raises(ValueError, match="max_steps or n_epochs"):
        total_steps(None, None, 10, 4)
    with pytest.raises(ValueError, match="0 tasks"):
        total_steps(3, None, 0, 4)
