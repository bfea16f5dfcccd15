"""What the terminal is given when a screen comes up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from rich.console import RenderableType
from textual._compositor import LayoutUpdate
from textual.color import Color
from textual.pilot import Pilot
from textual.screen import Screen

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.trial import TrialScreen
from tests.ui.opening import press
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START


class PaintedApp(TbtuiApp):
    """Keeps the text of every paint of a whole screen."""

    def __init__(self, directory: RunDirectory, *, live: bool = False) -> None:
        super().__init__(PastHost(directory), live=live, clock=lambda: START + 40.0)
        self.paints: list[tuple[Screen[Any], str]] = []

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)
        if isinstance(renderable, LayoutUpdate):
            rows = ("".join(strip.text for strip in strips) for strips in renderable.strips)
            self.paints.append((screen, "\n".join(rows)))

    async def first_paint(self) -> str:
        """What the top screen first painted, as text."""
        while True:
            for screen, text in self.paints:
                if screen is self.screen:
                    return text
            await asyncio.sleep(0.01)


Painted = Callable[..., AbstractAsyncContextManager[tuple[Pilot[int], PaintedApp]]]


@pytest.fixture
def painted(run_directory: RunDirectory) -> Painted:
    """Opens such an app."""

    @asynccontextmanager
    async def open_app() -> AsyncIterator[tuple[Pilot[int], PaintedApp]]:
        app = PaintedApp(run_directory)
        async with app.run_test(size=(160, 45)) as pilot:
            await settle(app)
            yield pilot, app

    return open_app


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("enter", ("Look for it first.", "group ✗")),
        ("g", ("they diverge at turn 1", "mv notes.md")),
        ("?", ("cockpit", "Open the selected trial")),
        ("c", ("no commands yet",)),
    ],
)
async def test_the_first_paint_of_a_screen_has_what_it_has_to_say(
    painted: Painted, key: str, shown: tuple[str, ...]
) -> None:
    async with painted() as (pilot, app):
        cockpit = app.screen
        await pilot.press(key)
        assert app.screen is not cockpit
        seen = await app.first_paint()
        assert all(text in seen for text in shown), seen


async def test_the_way_back_is_painted_once(painted: Painted) -> None:
    async with painted() as (pilot, app):
        cockpit = app.screen
        for key in ("enter", "g", "?"):
            await pilot.press(key)
            await settle(app)
            app.paints.clear()
            await pilot.press("escape")
            assert app.screen is cockpit
            await settle(app)
            await asyncio.sleep(0.1)  # for what would come once the other screen has gone
            assert [screen for screen, _ in app.paints] == [cockpit], key
            assert "trials" in app.paints[0][1]


async def test_a_screen_that_nobody_sees_is_not_drawn(painted: Painted) -> None:
    async with painted() as (pilot, app):
        cockpit = app.screen
        await press(pilot, "enter")
        await pilot.pause(0.1)
        app.paints.clear()
        cockpit.refresh(layout=True)
        await pilot.pause(0.1)
        assert not app.paints
        # It has the window's size when it is seen again.
        await pilot.resize_terminal(100, 30)
        await settle(app)
        await press(pilot, "escape")
        assert cockpit.size == (100, 30)
        assert cockpit.has_class("-compact")


async def test_a_screen_that_goes_before_it_was_painted_leaves_no_dark_screen_behind(
    painted: Painted,
) -> None:
    async with painted() as (pilot, app):
        app.action_open_trial()
        app.pop_screen()
        await pilot.pause()
        app.paints.clear()
        app.screen.refresh(layout=True)
        assert "trials" in await app.first_paint()


async def test_the_trial_screen_is_made_before_it_is_asked_for(run_directory: RunDirectory) -> None:
    app = PaintedApp(run_directory, live=True)
    async with app.run_test(size=(160, 45)) as pilot:
        spare = await _spare(app)
        await settle(app)  # the app's own beats read for some milliseconds each
        await pilot.press("enter")
        assert app.screen is spare
        selected = app.frames.frame().selected
        assert selected is not None
        assert spare.trial == selected.trial
        assert spare.query_one(TurnPane).transcript.turns
        assert "turns" in await app.first_paint()

        await pilot.press("escape")
        another = await _spare(app)
        assert another is not spare
        assert not spare.is_running

        # One that was styled for another theme is no use.
        app.use_theme("tbtui-light")
        await pilot.pause()
        await pilot.press("enter")
        assert isinstance(app.screen, TrialScreen)
        assert app.screen is not another
        assert app.screen.styles.background == Color.parse(app.palette.file.colors.background)


async def test_a_trial_screen_that_is_made_while_the_theme_changes_is_no_use(
    painted: Painted,
) -> None:
    async with painted() as (pilot, app):
        app.use_theme("tbtui-light")
        app.trial_screens.prepare()
        await settle(app)
        await pilot.press("enter")
        assert app.screen.styles.background == Color.parse(app.palette.file.colors.background)


async def test_the_app_may_end_while_the_trial_screen_is_being_made(
    painted: Painted,
) -> None:
    async with painted() as (_, app):
        assert app.trial_screens.prepare()
    assert app.crash is None


async def _spare(app: TbtuiApp) -> TrialScreen:
    """Once there is one: a screen that runs, though nobody sees it."""
    while True:
        assert isinstance(app.screen, Cockpit)
        for screen in app._registry:
            if isinstance(screen, TrialScreen) and screen.is_mounted:
                return screen
        await asyncio.sleep(0.02)
