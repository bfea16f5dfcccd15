from __future__ import annotations

import pytest

from tbtui.algorithm.schedule import learning_rate


def test_a_linear_rate_falls_in_equal_parts_and_never_to_nothing() -> None:
    rates = [learning_rate(4.0, "linear", step, 4) for step in range(1, 5)]
    assert rates == pytest.approx([4.0, 3.0, 2.0, 1.0])


def test_a_constant_rate_stays() -> None:
    assert {learning_rate(4.0, "constant", step, 4) for step in range(1, 5)} == {4.0}
