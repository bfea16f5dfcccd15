"""Forking a trial and writing to its agent, by their keys and dialogs."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from tbtui.ui.screens.dialogs import ReasonDialog
from tbtui.ui.screens.trial import TrialScreen
from tests.ui.opening import Opener, SimulatedHost, app_of, commands, open_trial
from tests.ui.picture import settle
from tests.ui.test_steering import choose, later, toasts


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("", {"trials": 8}),
        ("3", {"trials": 3}),
        ("bisect", {"turn": "bisect", "trials": 8}),
        ("all 4", {"turn": "all", "trials": 4}),
    ],
)
async def test_f_asks_how_many_and_from_where(
    steered: Opener, simulated: SimulatedHost, words: str, arguments: dict[str, object]
) -> None:
    async with steered() as pilot:
        trial = await open_trial(pilot)
        screen = app_of(pilot).screen
        assert isinstance(screen, TrialScreen)
        await pilot.press("F")
        dialog = app_of(pilot).screen
        assert isinstance(dialog, ReasonDialog)
        dialog.query_one(Input).value = words
        await pilot.press("enter")
        assert commands(pilot) == [("fork", trial)]
        given = simulated.commands[0].arguments
        assert {name: given[name] for name in arguments} == arguments
        assert "turn" in given


async def test_what_is_no_number_of_forks_asks_nothing(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        await open_trial(pilot)
        await pilot.press("F", *"many", "enter")
        assert commands(pilot) == []
        assert "give how many forks" in toasts(pilot)[-1][1]
        await pilot.press("F", "escape")
        assert commands(pilot) == []


async def test_m_writes_to_the_agent_of_a_paused_trial_alone(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        trial = simulated.simulation.acting()[0]
        await choose(pilot, trial)
        await pilot.press("m")
        assert not isinstance(app_of(pilot).screen, ReasonDialog)
        assert commands(pilot) == []
        await pilot.press("space")
        for _ in range(20):
            if app_of(pilot).live_run.state.trials[trial].paused:
                break
            await later(pilot, simulated)
        await pilot.press("m")
        dialog = app_of(pilot).screen
        assert isinstance(dialog, ReasonDialog)
        dialog.query_one(Input).value = "look at the tests"
        await pilot.press("enter")
        await settle(app_of(pilot))
        assert commands(pilot)[-1] == ("message", trial)
        assert simulated.commands[-1].arguments == {"text": "look at the tests"}
        await pilot.press("m", "enter")  # nothing to say
        assert len(commands(pilot)) == 2
