"""Active time only."""

from __future__ import annotations

import asyncio

import pytest

from tbtui.rollout.budget import Budget


async def test_runs_out() -> None:
    budget = Budget(0.01)
    with pytest.raises(TimeoutError):
        async with budget.spending():
            await asyncio.Event().wait()
    assert budget.spent


async def test_stands_still_while_held() -> None:
    budget = Budget(0.2)
    async with budget.spending():
        with budget.held():
            await asyncio.sleep(0.5)
    assert not budget.spent


async def test_goes_on_after_a_hold() -> None:
    budget = Budget(0.05)
    with pytest.raises(TimeoutError):
        async with budget.spending():
            with budget.held():
                await asyncio.sleep(0.1)
            await asyncio.Event().wait()
    assert budget.spent


async def test_is_shared_by_several_runs() -> None:
    budget = Budget(0.05)
    with pytest.raises(TimeoutError):
        async with budget.spending():
            await asyncio.Event().wait()
    # Nothing is left for another, which ends where it first waits.
    with pytest.raises(TimeoutError):
        async with budget.spending():
            for _ in range(10):
                await asyncio.sleep(0)
    assert budget.spent


async def test_another_time_out_is_not_its_own() -> None:
    budget = Budget(60)
    with pytest.raises(TimeoutError, match="other"):
        async with budget.spending():
            raise TimeoutError("other")
    assert not budget.spent


async def test_a_hold_outside_a_run_is_nothing() -> None:
    with Budget(1).held():
        pass
