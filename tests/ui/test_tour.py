"""The guided tour: on a run that obeys, on one that can't be steered, and left at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tbtui.journal.commands import RunEnd
from tbtui.ui.tour import STOPS, TourPanel
from tbtui.ui.user import User, read_preferences
from tbtui.view.state import TrialView
from tests.ui.opening import Opener, SimulatedHost, Steered, app_of, commands, press, rest


def stop(pilot: Pilot[int]) -> int:
    """Number of the stop on the screen; 0: there is none."""
    panels = pilot.app.screen.query(TourPanel)
    return int(str(panels.first().border_title).split()[1]) if panels else 0


def asked(pilot: Pilot[int]) -> str:
    return str(pilot.app.screen.query_one(TourPanel).render()).splitlines()[-1]


async def until(pilot: Pilot[int], simulated: SimulatedHost, number: int) -> None:
    for _ in range(40):
        if stop(pilot) == number:
            return
        simulated.advance(0.5)
        await rest(pilot)
    raise AssertionError(f"stop {stop(pilot)}, not {number}: {asked(pilot)}")


def choose_running(pilot: Pilot[int]) -> TrialView:
    app = app_of(pilot)
    running = next(each for each in app.live_run.state.live_trials() if each.turn)
    app.selection.choose(running.trial)
    return running


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_a_real_trial_is_paused_opened_taken_over_and_given_back(
    steered: Steered, size: tuple[int, int]
) -> None:
    async with steered(size=size) as (pilot, simulated):
        app = app_of(pilot)
        await press(pilot, "f2")
        assert stop(pilot) == 1
        assert len(STOPS) == 6
        running = choose_running(pilot)
        await until(pilot, simulated, 2)
        assert f"Press space: {running.label} pauses" in asked(pilot)
        await press(pilot, "space")
        await until(pilot, simulated, 3)
        assert app.live_run.state.trials[running.trial].hold.paused
        await press(pilot, "enter")
        await until(pilot, simulated, 4)
        await press(pilot, "i")
        await until(pilot, simulated, 5)
        await press(pilot, "l", "s")
        assert "ctrl+\\" in asked(pilot)
        panel = pilot.app.screen.query_one(TourPanel).region
        assert panel.bottom <= size[1]
        assert panel.height >= 4
        await press(pilot, "ctrl+backslash")
        await until(pilot, simulated, 6)
        verbs = [verb for verb, target in commands(pilot) if target == running.trial]
        assert [verb for verb in verbs if verb != "type"] == ["pause", "take_over", "give_back"]
        while app.opened_trial is not None:
            await press(pilot, "escape")
        while (ended := app.live_run.state.trials[running.trial]).live:
            simulated.advance(0.5)
            await rest(pilot)
        assert ended.outcome is not None
        told = str(pilot.app.screen.query_one(TourPanel).render())
        assert f"Yours, {running.label}: {ended.outcome.replace('_', ' ')}" in told
        await press(pilot, "g")
        assert "to go back" in asked(pilot)
        await press(pilot, "escape")
        assert stop(pilot) == 0
        assert app.tour is not None
        assert not app.tour.on


async def test_escape_ends_it_and_a_trial_that_ends_takes_it_back_to_pausing_one(
    steered: Steered,
) -> None:
    async with steered() as (pilot, simulated):
        await press(pilot, "f2")
        trial = choose_running(pilot)
        await press(pilot, "space")
        await until(pilot, simulated, 3)
        app_of(pilot).steering.submit("stop", trial.trial, trial.label)
        await until(pilot, simulated, 2)
        await press(pilot, "escape")
        assert stop(pilot) == 0
        await press(pilot, "f2")
        # A trial has been chosen before.
        assert stop(pilot) == 2


async def test_f2_goes_on_from_every_stop(steered: Steered) -> None:
    async with steered() as (pilot, _):
        seen = []
        for _ in range(5):
            await press(pilot, "f2")
            seen.append(stop(pilot))
            if not seen[-1]:
                break
        # Without a paused trial there is nothing to open, take over or give back.
        assert seen == [1, 2, 6, 0]


async def test_nothing_is_left_to_steer_when_the_run_is_over(steered: Steered) -> None:
    async with steered() as (pilot, _):
        await press(pilot, "f2", "f2")
        assert stop(pilot) == 2
        app_of(pilot).own.has_ended(RunEnd("finished", "2 steps"))
        await rest(pilot)
        assert stop(pilot) == 6


async def test_newcomers_are_taken_on_it_once(opened: Opener, tmp_path: Path) -> None:
    user = User.load(tmp_path, tmp_path)
    async with opened(user=user) as pilot:
        await rest(pilot)
        assert stop(pilot) == 1
        # It takes no focus: every key means what it does.
        await press(pilot, "enter")
        assert app_of(pilot).opened_trial is not None
        assert stop(pilot)
    assert read_preferences(tmp_path / "app.json").toured
    async with opened(user=User.load(tmp_path, tmp_path)) as pilot:
        await rest(pilot)
        assert stop(pilot) == 0
