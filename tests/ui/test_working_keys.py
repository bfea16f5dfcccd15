"""The key bar offers what works now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.key_bar import KeyLine
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import RunEnd, Services
from tests.ui.opening import Opener, SimulatedHost, app_of, open_trial, pane
from tests.ui.picture import settle

FOR_RUNNING = (" space pause ", " s stop ", " x cancel ", " i take over ", " z freeze ")


@pytest.mark.parametrize("opened", [False, True])
async def test_a_trial_that_has_ended_is_offered_nothing_that_it_would_refuse(
    steered: Opener, opened: bool
) -> None:
    async with steered(size=(300, 50)) as pilot:
        app = app_of(pilot)
        shown = app.frames.frame().shown
        ended = next(each for each in shown if not each.live and each.successor is None)
        running = next(each for each in shown if each.live and each.turn and not each.paused)
        bars = {}
        for trial in (ended, running):
            app.selection.choose(trial.trial)
            await settle(app)
            if opened:
                await pilot.press("enter")
                await settle(app)
            bars[trial.trial] = pane(pilot, "keys").text
            if opened:
                await pilot.press("escape")
        assert [key for key in FOR_RUNNING if key in bars[ended.trial]] == []
        assert [key for key in FOR_RUNNING if key not in bars[running.trial]] == []
        assert " r retry " in bars[ended.trial]


async def test_a_queued_trial_can_be_paused_ahead_or_taken_out_of_the_queue(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered(size=(300, 50)) as pilot:
        app = app_of(pilot)
        for _ in range(100):
            simulated.advance(0.5)
            await settle(app)
            live = app.live_run.state.live_trials()
            if queued := [each for each in live if each.phase == "queued"]:
                break
        app.selection.choose(queued[0].trial)
        await settle(app)
        row = pane(pilot, "keys").text
        assert " s stop " in row
        assert " x cancel " in row
        assert " space pause " in row
        for key in (" z freeze ", " r retry ", " i take over "):
            assert key not in row


async def test_a_paused_trial_and_a_paused_run_are_offered_to_be_resumed(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered(size=(300, 50)) as pilot:
        await open_trial(pilot, finished=False)
        await pilot.press("z")
        await settle(app_of(pilot))
        assert " z resume " in pane(pilot, "keys").text
        assert " space resume " in pane(pilot, "keys").text
        await pilot.press("P")
        await settle(app_of(pilot))
        assert " P resume run " in pane(pilot, "keys").text


@pytest.mark.parametrize("over", [False, True])
async def test_the_browser_says_that_it_copies_a_command_and_why(
    simulated: SimulatedHost, tmp_path: Path, over: bool
) -> None:
    def library(_: object) -> CatalogLibrary:
        return CatalogLibrary([tasks_dir() / "starter"], RunConfig(logs_dir=tmp_path))

    app = TbtuiApp(
        simulated,
        live=False,
        clock=lambda: simulated.simulation.now,
        services=Services(library=library),
    )
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        if over:
            app.own.has_ended(RunEnd("finished", "2 steps"))
        await pilot.press("T")
        while not isinstance(screen := app.screen, TaskBrowser):
            await pilot.pause(0.01)
        while any(each.name == "library" for each in app.workers):
            await pilot.pause(0.01)
        assert " r copy command " in screen.query_one(KeyLine).render_line(0).text
        await pilot.press("a", "r")
        while any(each.group == "sets" for each in app.workers):
            await pilot.pause(0.01)
        (copied,) = [each for each in app._notifications if each.title.startswith("Copied")]
        assert ("still going on" in copied.title, "quits" in copied.title) == (not over, over)
