"""Active time only."""

from __future__ import annotations

import asyncio
import time

import pytest

from tbtui.awake import AwakeClock
from tbtui.journal.events import PhaseSeconds
from tbtui.rollout.budget import Budget, Stopwatch


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


async def test_time_given_back_is_spent_later_and_no_clock_counts_it() -> None:
    budget = Budget(0.3)
    with pytest.raises(TimeoutError):
        async with budget.spending():
            began, active = time.monotonic(), budget.active()
            budget.give_back_starved(0.2)
            budget.give_back_starved(0.1)
            await asyncio.sleep(60)
    assert time.monotonic() - began >= 0.6
    assert budget.active() - active <= time.monotonic() - began - 0.25
    assert (budget.lost, budget.given_back) == (pytest.approx(0.3), pytest.approx(0.3))
    assert budget.starved


async def test_no_more_is_given_back_than_there_was() -> None:
    budget = Budget(0.2)
    budget.give_back_starved(5.0)
    assert budget.lost == 0.0  # nobody was spending it
    with pytest.raises(TimeoutError):
        async with budget.spending():
            budget.give_back_starved(5.0)
            await asyncio.sleep(60)
    assert (budget.lost, budget.given_back) == (5.0, 0.2)


async def test_while_it_is_held_nothing_is_lost() -> None:
    budget = Budget(10.0)
    async with budget.spending():
        with budget.held():
            budget.give_back(1.0)
    assert budget.lost == 0.0


def test_what_holds_an_answer_back_is_no_pause() -> None:
    now = 0.0
    watch = Stopwatch(lambda: now)
    watch.enter("sampling")
    watch.delay()
    now = 2.0
    watch.hold()  # a person pauses meanwhile
    now = 5.0
    watch.release()
    watch.go_on()
    now = 6.0
    assert watch.seconds() == PhaseSeconds(delayed=2.0, paused=3.0, sampling=1.0)


def test_a_trial_that_ends_as_soon_as_it_wakes_up_has_paused() -> None:
    """Nobody need have looked at the clock between the sleep and its end."""
    now = 1000.0
    clock = AwakeClock(lambda: now, lambda: now)
    now += 3600.0  # before it began
    clock.time()
    watch = Stopwatch(clock.time, clock.asleep)
    watch.enter("commands")
    now += 0.25
    clock.time()
    now += 20.0
    seconds = watch.seconds()
    assert seconds.paused == pytest.approx(20.0)
    assert seconds.commands == pytest.approx(0.25)
