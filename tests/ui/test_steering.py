"""Steering and forking single trials by key, in the real app over a run that obeys."""

from __future__ import annotations

import itertools

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.journal.commands import RUN
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.dialogs import ConfirmDialog, ReasonDialog
from tbtui.ui.screens.trial import TrialScreen
from tbtui.view.state import TrialView
from tests.ui.opening import (
    Steered,
    advance_until,
    app_of,
    commands,
    later,
    open_trial,
    pane,
    press,
    screen_of,
    toasts,
)
from tests.ui.picture import settle


async def choose(pilot: Pilot[int], trial: str) -> TrialView:
    app = app_of(pilot)
    app.selection.choose(trial)
    await settle(app)
    return app.live_run.state.trials[trial]


ASKED: dict[tuple[str, ...], str] = {
    ("space",): "pause",
    ("z",): "freeze",
    ("s",): "stop",
    ("x", "y"): "cancel",
    ("r", "y"): "retry",
    ("e", "enter"): "exclude",
}


@pytest.mark.parametrize("opened_trial", [False, True], ids=["cockpit", "trial"])
async def test_each_key_sends_its_command_once(steered: Steered, opened_trial: bool) -> None:
    async with steered() as (pilot, simulated):
        trials = simulated.simulation.acting()
        asked = list(zip(ASKED, trials, strict=False))
        assert len(asked) == len(ASKED)
        for keys, trial in asked:
            await choose(pilot, trial)
            if opened_trial:
                await pilot.press("enter")
                assert isinstance(pilot.app.screen, TrialScreen)
            await pilot.press(*keys)
            if opened_trial:
                await pilot.press("escape")
        assert commands(pilot) == [(ASKED[keys], trial) for keys, trial in asked]
        assert all(command.actor for command in simulated.commands)


async def test_what_costs_an_attempt_is_asked_about_first(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        view = await choose(pilot, simulated.simulation.acting()[0])
        for key, no in itertools.product(("x", "r"), ("n", "escape", "enter")):
            await pilot.press(key)
            assert isinstance(pilot.app.screen, ConfirmDialog)
            assert view.label in str(pilot.app.screen.query_one("#question").render())
            await pilot.press(no)
            assert not isinstance(pilot.app.screen, ConfirmDialog)
        await pilot.press("e", "a", "escape")
        assert commands(pilot) == []


async def test_a_frozen_trial_is_seen_and_thaws(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        view = await choose(pilot, simulated.simulation.acting()[0])
        await pilot.press("z")
        await later(pilot, simulated)
        assert view.hold.frozen
        line = next(x for x in pane(pilot, "trials").text.splitlines() if view.label in x)
        assert f"❄ {view.label}" in line
        assert "1 frozen" in str(pane(pilot, "trials").border_title)
        turn, spent = view.turn, view.spent["commands" if "commands" in view.spent else "setup"]
        await later(pilot, simulated, 5.0)
        assert (view.turn, view.live) == (turn, True)
        await press(pilot, "enter")
        assert "frozen" in pane(pilot, "head").text
        await pilot.press("space")
        await later(pilot, simulated)
        assert not view.hold.frozen
        assert commands(pilot) == [("freeze", view.trial), ("resume", view.trial)]
        assert spent <= view.spent["paused"]


async def test_an_exclusion_carries_its_reason_and_can_be_taken_back(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        view = await choose(pilot, simulated.simulation.done()[0])
        scored = len(app_of(pilot).live_run.state.rewards)
        await pilot.press("e")
        assert isinstance(pilot.app.screen, ReasonDialog)
        # Letters that are keys elsewhere are text here.
        await pilot.press("s", "x", "q", "space", "1")
        assert pilot.app.screen.query_one(Input).value == "sxq 1"
        await pilot.press("enter")
        await later(pilot, simulated, 0.0)
        assert simulated.commands[-1].reason == "sxq 1"
        assert (view.excluded, view.exclusion_reason) == (True, "sxq 1")
        assert len(app_of(pilot).live_run.state.rewards) == scored - 1
        assert f"{view.label} ⊘" in pane(pilot, "trials").text
        await press(pilot, "enter")
        assert "⊘ excluded" in pane(pilot, "head").text
        await press(pilot, "4")
        assert "excluded: sxq 1" in pane(pilot, "facts").text
        assert "1 excluded" in pane(pilot, "facts").text
        await pilot.press("e")
        await later(pilot, simulated, 0.0)
        assert not view.excluded
        assert len(app_of(pilot).live_run.state.rewards) == scored
        assert [verb for verb, _ in commands(pilot)] == ["exclude", "include"]


async def test_a_finished_trial_is_retried_without_asking_and_keeps_its_attempts(
    steered: Steered,
) -> None:
    async with steered() as (pilot, simulated):
        app = app_of(pilot)
        old = await choose(pilot, simulated.simulation.done()[0])
        await pilot.press("r")
        await later(pilot, simulated)
        assert commands(pilot) == [("retry", old.trial)]
        assert old.successor is not None
        # The selection hands over; both attempts are reached from each other.
        assert app.selection.trial == old.successor
        await press(pilot, "enter")
        assert "attempt 2 of 2" in pane(pilot, "head").text
        await press(pilot, "a")
        assert isinstance(app.screen, TrialScreen)
        assert app.screen.trial == old.trial
        assert "attempt 1 of 2" in pane(pilot, "head").text
        await press(pilot, "4")
        assert "asked for by a person" in pane(pilot, "facts").text
        await press(pilot, "a")
        assert isinstance(app.screen, TrialScreen)
        assert app.screen.trial == old.successor
        await pilot.press("escape")
        assert not isinstance(app.screen, TrialScreen)


async def test_what_makes_no_sense_is_refused_at_once(steered: Steered) -> None:
    async with steered() as (pilot, _):
        state = app_of(pilot).live_run.state
        held_out = next(t for t in state.trials.values() if t.purpose == "eval")
        app_of(pilot)._chosen = lambda: held_out  # type: ignore[method-assign]
        refusals = {
            "e": "never trained on",
            "x": "has ended",
            "r": "no part of the step that is being sampled",
            "z": "nothing to freeze",
        }
        for key, words in refusals.items():
            await pilot.press(key)
            assert any(words in text for text in toasts(pilot))
        assert commands(pilot) == []


async def test_a_refusal_is_told_and_so_quietly_is_success(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        trial = simulated.simulation.acting()[0]
        view = await choose(pilot, trial)
        await pilot.press("z")
        await later(pilot, simulated, 0.0)
        (told,) = pilot.app._notifications
        assert (told.severity, told.message) == ("information", f"{view.label} is frozen")
        # It ends in the engine before the app has heard of it.
        other = simulated.simulation.acting()[1]
        late = await choose(pilot, other)
        assert late.live
        while other in simulated.simulation.acting():
            simulated.advance(0.2)
        await press(pilot, "space")
        warnings = [each for each in pilot.app._notifications if each.severity == "warning"]
        refusals = [each.message for each in warnings]
        refusal = simulated.simulation.refusal(other, "pause")
        assert refusals == [refusal.replace(other, late.label)]
        count = len(toasts(pilot))
        await later(pilot, simulated, 0.2)
        assert len(toasts(pilot)) == count
        assert view.hold.frozen


async def test_the_list_of_commands_says_who_what_why_and_what_came(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        await pilot.press("c")
        assert isinstance(pilot.app.screen, CommandScreen)
        await settle(app_of(pilot))
        assert "no commands yet" in pane(pilot, "given").text
        await pilot.press("escape")
        view = await choose(pilot, simulated.simulation.acting()[0])
        await pilot.press("e", *"odd", "enter", "P")
        await later(pilot, simulated, 0.0)
        await press(pilot, "c")
        text = pane(pilot, "given").text
        actor = simulated.commands[0].actor
        (line,) = (line for line in text.splitlines() if "exclude" in line)
        assert line.split()[0] == "✓"
        assert actor in line
        assert view.label in line
        assert "reason: odd" in text
        assert "the run is paused" in text
        assert commands(pilot)[-1] == ("pause", RUN)
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, CommandScreen)


async def test_a_run_being_paused_says_how_many_trials_still_run(steered: Steered) -> None:
    async with steered((200, 60)) as (pilot, simulated):
        await pilot.press("P")
        await later(pilot, simulated, 0.0)
        assert "to reach the end of a turn" in pane(pilot, "status").text
        await later(pilot, simulated, 20.0)
        assert "P resumes" in pane(pilot, "status").text
        await pilot.press("P")
        await later(pilot, simulated)
        assert commands(pilot) == [("pause", RUN), ("resume", RUN)]


DRAWN: dict[tuple[str, ...], dict[str, object]] = {
    ("plus",): {"times": 2},
    ("minus",): {"times": 0.5},
    ("p",): {"pinned": True},
    ("m",): {"muted": True},
    ("w", *"2.5 rare", "enter"): {"weight": 2.5},
}


async def test_how_often_a_task_is_drawn(steered: Steered) -> None:
    async with steered(size=(160, 45)) as (pilot, simulated):
        # The cursor of the tree goes to the first task of the first kind.
        pilot.app.screen.query_one("#tasks").focus()
        await press(pilot, "down", "right", "down")
        for keys, arguments in DRAWN.items():
            await press(pilot, *keys)
            verb, target = commands(pilot)[-1]
            assert verb == "set"
            assert target in {task.name for task in app_of(pilot).live_run.state.tasks.values()}
            assert simulated.commands[-1].arguments == arguments
            assert simulated.commands[-1].reason == ("rare" if keys[0] == "w" else "")
        assert len(simulated.commands) == len(DRAWN)
        await press(pilot, "w", *"much", "enter")
        assert len(simulated.commands) == len(DRAWN)
        assert "is no number" in toasts(pilot)[-1]


FORKS: dict[str, dict[str, object]] = {
    "": {"trials": 8},
    "3": {"trials": 3},
    "bisect": {"turn": "bisect", "trials": 8},
    "all 4": {"turn": "all", "trials": 4},
}
"""What is answered, and what is asked for then."""


async def test_f_asks_how_many_and_from_where(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        trial = await open_trial(pilot)
        await pilot.press("F", *"many", "enter")
        assert "give how many forks" in toasts(pilot)[-1]
        await pilot.press("F", "escape")
        assert commands(pilot) == []
        for words, arguments in FORKS.items():
            await pilot.press("F")
            dialog = screen_of(pilot, ReasonDialog)
            dialog.query_one(Input).value = words
            await pilot.press("enter")
            assert commands(pilot)[-1] == ("fork", trial)
            given = simulated.commands[-1].arguments
            assert {name: given[name] for name in arguments} == arguments
            assert "turn" in given
        assert len(simulated.commands) == len(FORKS)


async def test_m_writes_to_the_agent_of_a_paused_trial_alone(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        trial = simulated.simulation.acting()[0]
        view = await choose(pilot, trial)
        await pilot.press("m")
        assert not isinstance(app_of(pilot).screen, ReasonDialog)
        assert commands(pilot) == []
        await pilot.press("space")
        await advance_until(pilot, simulated, lambda: view.hold.paused)
        await pilot.press("m")
        dialog = screen_of(pilot, ReasonDialog)
        dialog.query_one(Input).value = "look at the tests"
        await press(pilot, "enter")
        assert commands(pilot)[-1] == ("message", trial)
        assert simulated.commands[-1].arguments == {"text": "look at the tests"}
        await pilot.press("m", "enter")  # nothing to say
        assert len(commands(pilot)) == 2
