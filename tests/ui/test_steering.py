"""Steering single trials by key, in the real app over a run that obeys."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.journal.commands import RUN
from tbtui.ui.command_rules import Refusal, verb_meant
from tbtui.ui.input.keys import KEYS
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.dialogs import ConfirmDialog, ReasonDialog
from tbtui.ui.screens.help import help_text
from tbtui.ui.screens.trial import TrialScreen
from tbtui.view.state import StepView, TrialView
from tbtui.vocabulary import RunPhase
from tests.ui.opening import Opener, SimulatedHost, app_of, commands, pane
from tests.ui.picture import settle


async def choose(pilot: Pilot[int], trial: str) -> TrialView:
    app = app_of(pilot)
    app.selection.choose(trial)
    await settle(app)
    return app.live_run.state.trials[trial]


async def later(pilot: Pilot[int], host: SimulatedHost, seconds: float = 0.5) -> None:
    host.advance(seconds)
    await settle(app_of(pilot))


def toasts(pilot: Pilot[int]) -> list[tuple[str, str]]:
    return [(toast.severity, str(toast.message)) for toast in pilot.app._notifications]


@pytest.mark.parametrize(
    ("keys", "verb"),
    [
        (("space",), "pause"),
        (("z",), "freeze"),
        (("s",), "stop"),
        (("x", "y"), "cancel"),
        (("r", "y"), "retry"),
        (("e", "enter"), "exclude"),
    ],
)
@pytest.mark.parametrize("opened_trial", [False, True], ids=["cockpit", "trial"])
async def test_each_key_sends_its_command_once(
    steered: Opener,
    simulated: SimulatedHost,
    keys: tuple[str, ...],
    verb: str,
    opened_trial: bool,
) -> None:
    async with steered() as pilot:
        trial = simulated.simulation.acting()[1]
        await choose(pilot, trial)
        if opened_trial:
            await pilot.press("enter")
            assert isinstance(pilot.app.screen, TrialScreen)
        await pilot.press(*keys)
        assert commands(pilot) == [(verb, trial)]
        assert simulated.commands[0].actor


@pytest.mark.parametrize("key", ["x", "r"])
@pytest.mark.parametrize("no", ["n", "escape", "enter"])
async def test_what_costs_an_attempt_is_asked_about_first(
    steered: Opener, simulated: SimulatedHost, key: str, no: str
) -> None:
    async with steered() as pilot:
        view = await choose(pilot, simulated.simulation.acting()[0])
        await pilot.press(key)
        assert isinstance(pilot.app.screen, ConfirmDialog)
        assert view.label in str(pilot.app.screen.query_one("#question").render())
        await pilot.press(no)
        assert not isinstance(pilot.app.screen, ConfirmDialog)
        assert commands(pilot) == []


async def test_a_frozen_trial_is_seen_and_thaws(steered: Opener, simulated: SimulatedHost) -> None:
    async with steered() as pilot:
        view = await choose(pilot, simulated.simulation.acting()[0])
        await pilot.press("z")
        await later(pilot, simulated)
        assert view.frozen
        line = next(x for x in pane(pilot, "trials").text.splitlines() if view.label in x)
        assert f"❄ {view.label}" in line
        assert "1 frozen" in str(pane(pilot, "trials").border_title)
        turn, spent = view.turn, view.spent["commands" if "commands" in view.spent else "setup"]
        await later(pilot, simulated, 5.0)
        assert (view.turn, view.live) == (turn, True)
        await pilot.press("enter")
        await settle(app_of(pilot))
        assert "frozen" in pane(pilot, "head").text
        await pilot.press("space")
        await later(pilot, simulated)
        assert not view.frozen
        assert commands(pilot) == [("freeze", view.trial), ("resume", view.trial)]
        assert spent <= view.spent["paused"]


async def test_an_exclusion_carries_its_reason_and_can_be_taken_back(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
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
        await pilot.press("enter")
        await settle(app_of(pilot))
        assert "⊘ excluded" in pane(pilot, "head").text
        await pilot.press("4")
        await settle(app_of(pilot))
        assert "excluded: sxq 1" in pane(pilot, "facts").text
        assert "1 left out" in pane(pilot, "facts").text
        await pilot.press("e")
        await later(pilot, simulated, 0.0)
        assert not view.excluded
        assert len(app_of(pilot).live_run.state.rewards) == scored
        assert [verb for verb, _ in commands(pilot)] == ["exclude", "include"]


async def test_escape_excludes_nothing(steered: Opener, simulated: SimulatedHost) -> None:
    async with steered() as pilot:
        await choose(pilot, simulated.simulation.acting()[0])
        await pilot.press("e", "a", "escape")
        assert commands(pilot) == []


async def test_a_finished_trial_is_retried_without_asking_and_keeps_its_attempts(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        old = await choose(pilot, simulated.simulation.done()[0])
        await pilot.press("r")
        await later(pilot, simulated)
        assert commands(pilot) == [("retry", old.trial)]
        assert old.successor is not None
        # The selection hands over; both attempts are reached from each other.
        assert app.selection.trial == old.successor
        await pilot.press("enter")
        await settle(app)
        assert "attempt 2 of 2" in pane(pilot, "head").text
        await pilot.press("a")
        await settle(app)
        assert isinstance(app.screen, TrialScreen)
        assert app.screen.trial == old.trial
        assert "attempt 1 of 2" in pane(pilot, "head").text
        await pilot.press("4")
        await settle(app)
        assert "asked for by a person" in pane(pilot, "facts").text
        await pilot.press("a")
        await settle(app)
        assert isinstance(app.screen, TrialScreen)
        assert app.screen.trial == old.successor
        await pilot.press("escape")
        assert not isinstance(app.screen, TrialScreen)


async def test_what_makes_no_sense_is_refused_at_once(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
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
            assert any(words in text for _, text in toasts(pilot))
        assert commands(pilot) == []


async def test_every_open_step_can_be_changed_in_any_phase(
    steered: Opener, simulated: SimulatedHost
) -> None:
    """Whether it is too late, the engine says."""
    async with steered() as pilot:
        state = app_of(pilot).live_run.state
        trial = await choose(pilot, simulated.simulation.done()[0])
        state.steps.append(StepView(trial.step + 1, 0.0))
        for state.phase in (RunPhase.TRAINING, RunPhase.SAVING, RunPhase.SAMPLING):
            assert verb_meant("exclude", trial, state) == "exclude"
            assert verb_meant("retry", trial, state) == "retry"
        for step in state.steps:
            step.finished_at = 1.0
        why = "it is no part of the step that is being sampled: nothing to exclude"
        assert verb_meant("exclude", trial, state) == Refusal(why)


async def test_a_refusal_is_told_and_so_quietly_is_success(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        trial = simulated.simulation.acting()[0]
        view = await choose(pilot, trial)
        await pilot.press("z")
        await later(pilot, simulated, 0.0)
        assert ("information", f"{view.label} is frozen") in toasts(pilot)
        # It ends in the engine before the app has heard of it.
        other = simulated.simulation.acting()[1]
        late = await choose(pilot, other)
        assert late.live
        while other in simulated.simulation.acting():
            simulated.advance(0.2)
        await pilot.press("space")
        await settle(app)
        refusals = [text for severity, text in toasts(pilot) if severity == "warning"]
        refusal = simulated.simulation.refusal(other, "pause")
        assert refusals == [refusal.replace(other, late.label)]
        count = len(toasts(pilot))
        await later(pilot, simulated, 0.2)
        assert len(toasts(pilot)) == count
        assert view.frozen


async def test_the_list_of_commands_says_who_what_why_and_what_came(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        await pilot.press("c")
        assert isinstance(pilot.app.screen, CommandScreen)
        await settle(app_of(pilot))
        assert "no commands yet" in pane(pilot, "given").text
        await pilot.press("escape")
        view = await choose(pilot, simulated.simulation.acting()[0])
        await pilot.press("e", *"odd", "enter", "P")
        await later(pilot, simulated, 0.0)
        await pilot.press("c")
        await settle(app_of(pilot))
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


async def test_a_run_being_paused_says_how_many_trials_still_run(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered((200, 60)) as pilot:
        await pilot.press("P")
        await later(pilot, simulated, 0.0)
        assert "to reach the end of a turn" in pane(pilot, "status").text
        await later(pilot, simulated, 20.0)
        assert "P resumes" in pane(pilot, "status").text
        await pilot.press("P")
        await later(pilot, simulated)
        assert commands(pilot) == [("pause", RUN), ("resume", RUN)]


async def test_estimates_and_the_wait_are_shown(steered: Opener) -> None:
    async with steered((200, 60)) as pilot:
        status = pane(pilot, "status").text
        assert "~" in status
        assert " left)" in status
        assert "%" in status
        running = app_of(pilot).live_run.state.running_trials()
        app_of(pilot).selection.choose(running[0].trial)
        await settle(app_of(pilot))
        assert "~" in pane(pilot, "trials").text
        assert str(pane(pilot, "times").border_title) == "what step 2 waits for"
        assert "step trials" in pane(pilot, "times").text


async def test_the_footer_at_80x24_and_the_help_name_the_keys(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        await choose(pilot, simulated.simulation.acting()[0])
        bar = pane(pilot, "keys").text
        for words in ("space pause", "s stop", "x cancel", "1-6 panes", "? help", "q quit"):
            assert words in bar
        text = " ".join(help_text(KEYS).split())
        for key in KEYS:
            assert key.help in text
        titles = [c.title for c in pilot.app.get_system_commands(pilot.app.screen)]
        for title in ("freeze (z)", "cancel (x)", "retry (r)", "exclude (e)", "history (c)"):
            assert title in titles


async def to_a_task(pilot: Pilot[int]) -> None:
    """Put the cursor of the tree on the first task of the first kind."""
    pilot.app.screen.query_one("#tasks").focus()
    for key in ("down", "right", "down"):
        await settle(app_of(pilot))
        await pilot.press(key)
    await settle(app_of(pilot))


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        (("plus",), {"times": 2}),
        (("minus",), {"times": 0.5}),
        (("p",), {"pinned": True}),
        (("m",), {"muted": True}),
        (("w", *"2.5 rare", "enter"), {"weight": 2.5}),
    ],
)
async def test_how_often_a_task_is_drawn(
    steered: Opener, simulated: SimulatedHost, keys: tuple[str, ...], arguments: dict[str, object]
) -> None:
    async with steered(size=(160, 45)) as pilot:
        await to_a_task(pilot)
        await pilot.press(*keys)
        await settle(app_of(pilot))
        ((verb, target),) = commands(pilot)
        assert verb == "set"
        assert target in {task.name for task in app_of(pilot).live_run.state.tasks.values()}
        assert simulated.commands[0].arguments == arguments
        assert simulated.commands[0].reason == ("rare" if keys[0] == "w" else "")


async def test_a_weight_that_is_no_number_is_said(steered: Opener) -> None:
    async with steered(size=(160, 45)) as pilot:
        await to_a_task(pilot)
        await pilot.press("w", *"much", "enter")
        assert commands(pilot) == []
        assert "is no number" in toasts(pilot)[-1][1]
