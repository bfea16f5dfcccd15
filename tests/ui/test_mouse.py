"""The mouse: what a click, a double click, a wheel and a drag do, screen by screen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.command import CommandInput, CommandList
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.panes.pane import Pane
from tbtui.ui.panes.siblings import SiblingsPane
from tbtui.ui.panes.tasks import TaskPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.dialogs import ReasonDialog
from tbtui.ui.screens.help import HelpDialog
from tbtui.ui.screens.search import HitsPane, SearchScreen
from tbtui.ui.screens.trial import TrialScreen
from tests.ui.opening import (
    Opener,
    app_of,
    commands,
    open_trial,
    pane,
    press,
    replaying,
    screen_of,
    wheel,
    window,
)
from tests.ui.picture import settle


async def click_on(pilot: Pilot[int], selector: str, text: str) -> None:
    """Where a pane of one line says this."""
    x = pane(pilot, selector.removeprefix("#")).text.index(text)
    await pilot.click(selector, offset=(x + 1, 0))
    await settle(app_of(pilot))


@pytest.mark.slow
async def test_in_a_small_window_every_pane_is_reached_by_clicks(opened: Opener) -> None:
    async with opened(size=(80, 24)) as pilot:
        screen = screen_of(pilot, Cockpit)
        seen = []
        for _ in range(7):
            await click_on(pilot, "#keys", "panes")
            seen.append(screen.full)
        assert seen == [1, 2, 3, 4, 5, 6, 0]
        for line, full in ((1, 6), (2, 4), (3, 5)):
            await pilot.click("#summary", offset=(20, line))
            assert screen.full == full
            await settle(app_of(pilot))
            # Once more on its title: all panes again.
            first = screen.PANES[full][0]
            await pilot.click(f"#{first}", offset=(3, 0))
            assert screen.full == 0
            await settle(app_of(pilot))
        await click_on(pilot, "#keys", "more")
        assert type(pilot.app.screen).__name__ == "CommandPalette"


async def test_a_title_is_no_row_and_the_wheel_moves_no_cursor(opened: Opener) -> None:
    async with opened(size=(80, 24)) as pilot:
        app = app_of(pilot)
        await press(pilot, "1", "space")
        tasks = app.screen.query_one(TaskPane)
        await wheel(pilot, "#tasks", 3)
        top = tasks.scroll_y
        assert top > 0
        await settle(app)
        assert tasks.scroll_y == top
        assert tasks._cursor == 0
        await pilot.click("#tasks", offset=(8, 0))
        assert tasks._cursor == 0
        assert not app.listing.filter
        await press(pilot, "1")
        await pilot.click("#tasks", offset=(8, 3))
        # The first row of all names the columns.
        assert tasks._cursor == round(tasks.scroll_y) + 1


@pytest.mark.slow
async def test_over_the_terminal_the_wheel_goes_back_in_time(opened: Opener) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        app = app_of(pilot)
        assert "rewound" not in str(pane(pilot, "terminal").border_title)
        await wheel(pilot, "#terminal", -3)
        await settle(app)
        title = str(pane(pilot, "terminal").border_title)
        assert " · rewound to " in title
        assert " · $ " in title
        assert not app.screen.query_one(TurnPane).follow
        await wheel(pilot, "#terminal", 4)
        await settle(app)
        assert "rewound" not in str(pane(pilot, "terminal").border_title)


@pytest.mark.slow
async def test_siblings_are_scrolled_and_chosen(opened: Opener) -> None:
    async with opened(size=(80, 24)) as pilot:
        app = app_of(pilot)
        await press(pilot, "g")
        siblings = app.screen.query_one(SiblingsPane)
        await wheel(pilot, "#siblings", 2)
        top = siblings.scroll_y
        assert top > 0
        await settle(app)
        assert siblings.scroll_y == top
        assert siblings.spread.turn == 0
        await pilot.click("#siblings", offset=(60, 12))
        assert siblings.spread.chosen == 1
        assert siblings.spread.turn > 0
        await pilot.click("#siblings", offset=(60, 6), times=2)
        assert isinstance(app.screen, TrialScreen)


@pytest.mark.slow
async def test_dialogs_are_answered_and_left_by_clicks(opened: Opener) -> None:
    async with opened(size=(100, 30)) as pilot:
        app = app_of(pilot)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpDialog)
        await pilot.click(offset=(1, 1))
        assert isinstance(app.screen, Cockpit)
        live = next(t for t in app.live_run.state.running_trials() if not t.pending)
        app.selection.choose(live.trial)
        for hint, given in (("esc  go back", []), ("enter  confirm", [("exclude", live.trial)])):
            await pilot.press("e")
            assert isinstance(app.screen, ReasonDialog)
            words = str(app.screen.query_one("#hint").render())
            await pilot.click("#hint", offset=(words.index(hint) + 2, 0))
            await pilot.pause()
            assert isinstance(app.screen, Cockpit)
            assert commands(pilot) == given


@pytest.mark.slow
async def test_a_key_of_a_pane_works_in_the_key_line_wherever_the_focus_is(opened: Opener) -> None:
    async with opened(size=(120, 30)) as pilot:
        app = app_of(pilot)
        await pilot.press("ctrl+f")
        assert isinstance(app.screen, SearchScreen)
        hits = app.screen.query_one(HitsPane)
        box = app.screen.query_one(Input)
        box.value = "manifest"
        for _ in range(50):
            await pilot.pause(0.1)
            await settle(app)
            if hits.share >= 1 and len(hits.hits) > 30:
                break
        assert box.has_focus
        await wheel(pilot, "#hits", 3)
        top = hits.scroll_y
        await settle(app)
        assert hits.scroll_y == top > 0
        await pilot.click("#hits", offset=(5, 2))
        assert isinstance(app.screen, SearchScreen)
        box.focus()
        await click_on(pilot, "#keys", "open")
        assert isinstance(app.screen, TrialScreen)
        assert app.screen.trial == hits.hits[round(top) + 1].trial


@pytest.mark.slow
async def test_the_clock_of_a_replay_is_dragged_played_and_wheeled(
    run_directory: RunDirectory,
) -> None:
    app, recorded = replaying(run_directory, monotonic=lambda: 0.0)
    async with window(app) as pilot:
        clock = recorded.playback
        length = clock.end - clock.start

        async def share_after_pointing(x: int) -> float:
            await pilot.pause()
            await settle(app)
            return (clock.position - clock.start) / length

        await pilot.mouse_down("#transport", offset=(30, 0))
        early = await share_after_pointing(30)
        assert 0.1 < early < 0.3
        await pilot.hover("#transport", offset=(90, 0))
        assert early < await share_after_pointing(90) < 0.8
        # Beyond the line, and beside it: its end.
        await pilot.hover("#status", offset=(159, 0))
        assert await share_after_pointing(159) == 1.0
        await pilot.mouse_up("#status", offset=(159, 0))
        await pilot.hover("#transport", offset=(30, 0))
        assert await share_after_pointing(30) == 1.0

        await wheel(pilot, "#transport", -1)
        assert clock.position == pytest.approx(clock.end - 10)
        speed = clock.speed
        await pilot.click("#transport", offset=(155, 0))
        assert clock.speed == speed * 2
        assert not clock.playing
        await pilot.click("#transport", offset=(1, 0))
        assert clock.playing
        clock.toggle()
        done = recorded.timeline.step_end(1)
        await settle(app)
        timeline = app.screen.query_one("#timeline", Pane)
        line = next(
            index
            for index, each in enumerate(timeline.text.splitlines())
            if each.startswith("   1")
        )
        await pilot.click("#timeline", offset=(8, line + 1))
        assert clock.position == done


@pytest.mark.slow
async def test_the_palette_does_what_a_pane_can(tmp_path: Path, opened: Opener) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        app = app_of(pilot)
        turns = app.screen.query_one(TurnPane)
        await pilot.press("up", "up")
        assert not turns.follow
        await pilot.press("ctrl+p")
        async with asyncio.timeout(30):
            while not isinstance(app.focused, CommandInput):
                await pilot.pause(0.1)
            await pilot.press(*"newest")
            hits = app.screen.query_one(CommandList)
            while not any("newest" in str(hit.prompt) for hit in hits.options):
                await pilot.pause(0.3)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert turns.follow
