"""Panes that grow follow their end until they are scrolled; then they count what comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.pane import GrowingPane
from tbtui.ui.panes.tokens import TokenPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.base import SMALLEST
from tbtui.ui.screens.trial import TrialScreen
from tests.ui.opening import Opener, SimulatedHost, app_of
from tests.ui.picture import settle
from tests.ui.synthetic import START, Simulation


async def wheel(pilot: Pilot[int], selector: str, turns: int) -> None:
    """Down, or up where `turns` is negative, with the pointer over a pane."""
    kind = events.MouseScrollUp if turns < 0 else events.MouseScrollDown
    for _ in range(abs(turns)):
        await pilot._post_mouse_events([kind], selector, offset=(6, 3), button=0)


async def later(pilot: Pilot[int], simulated: SimulatedHost, seconds: float) -> None:
    simulated.advance(seconds)
    await settle(app_of(pilot))
    await pilot.pause()


async def until(pilot: Pilot[int], simulated: SimulatedHost, happened: Callable[[], bool]) -> None:
    for _ in range(20):
        if happened():
            return
        await later(pilot, simulated, 0.5)
    pytest.fail("it never happened")


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[SimulatedHost]:
    """A run whose first trials have had a turn of about three."""
    simulation = Simulation(RunDirectory.create(tmp_path / "begun"))
    simulation.advance(START + 3.0)
    yield SimulatedHost(simulation)
    simulation.close()


@asynccontextmanager
async def watching(host: SimulatedHost) -> AsyncIterator[Pilot[int]]:
    """One of its trials, in the smallest window."""
    app = TbtuiApp(host, live=False, clock=lambda: host.simulation.now)
    async with app.run_test(size=SMALLEST) as pilot:
        await settle(app)
        app.push_screen(TrialScreen(host.simulation.acting()[0]))
        await later(pilot, host, 0.0)
        yield pilot


async def test_turns_stay_where_they_were_scrolled_to_and_count_what_comes(
    begun: SimulatedHost,
) -> None:
    async with watching(begun) as pilot:
        turns = pilot.app.screen.query_one(TurnPane)
        await until(pilot, begun, lambda: turns.max_scroll_y > 1)
        assert turns.follow
        assert turns.scroll_y == turns.max_scroll_y

        await wheel(pilot, "#turns", -1)
        assert not turns.follow
        chosen, at = turns.chosen, turns.scroll_y
        assert at < turns.max_scroll_y
        await until(pilot, begun, lambda: len(turns.transcript.turns) > chosen + 1)
        assert (turns.chosen, turns.scroll_y) == (chosen, at)
        assert str(turns.border_title).rstrip().endswith(f" · {turns.unseen} new")
        assert turns.unseen == len(turns.transcript.turns) - chosen - 1

        turns.focus()
        await pilot.press("end")
        await later(pilot, begun, 0.0)
        assert turns.follow
        assert turns.chosen == len(turns.transcript.turns) - 1
        assert "new" not in str(turns.border_title)


async def test_reading_the_tokens_holds_the_turn(begun: SimulatedHost) -> None:
    async with watching(begun) as pilot:
        turns = pilot.app.screen.query_one(TurnPane)
        tokens = pilot.app.screen.query_one(TokenPane)
        await until(pilot, begun, lambda: tokens.max_scroll_y > 2)
        await wheel(pilot, "#tokens", 1)
        held, before = tokens.contents, len(turns.transcript.turns)
        assert not turns.follow
        await until(pilot, begun, lambda: len(turns.transcript.turns) > before)
        assert tokens.contents == held
        assert "new" in str(turns.border_title)
        tokens.focus()
        await pilot.press("end")
        await later(pilot, begun, 0.0)
        assert turns.follow


@pytest.mark.slow
async def test_notes_and_commands_count_what_comes_below(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        await pilot.press("c")
        given = app.screen.query_one("#given", GrowingPane)
        trial = simulated.simulation.acting()[0]
        for _ in range(30):
            app.steering.submit("pause", trial, "one")
        await later(pilot, simulated, 0.0)
        assert given.follow
        assert given.scroll_y == given.max_scroll_y > 0
        await wheel(pilot, "#given", -2)
        at = given.scroll_y
        app.steering.submit("resume", trial, "one")
        await later(pilot, simulated, 0.0)
        assert given.scroll_y == at
        assert str(given.border_title).rstrip().endswith(" · 1 new")
        await wheel(pilot, "#given", 9)
        assert given.follow
        await later(pilot, simulated, 0.0)
        assert "new" not in str(given.border_title)


@pytest.mark.slow
async def test_the_selected_trial_stays_selected_whatever_the_grid_shows(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        grid = app.screen.query_one(TrialGrid)
        await pilot.press("right", "down")
        chosen = app.selection.trial
        label = app.live_run.state.trials[chosen or ""].label

        def under_cursor() -> str:
            return grid._trials[grid._index].trial

        for key in "oooo":
            await pilot.press(key)
            await later(pilot, simulated, 1.0)
            assert under_cursor() == chosen
        # A filter that it doesn't match, typed letter by letter, and taken back.
        await pilot.press("slash", *"zz")
        await later(pilot, simulated, 0.5)
        await pilot.press("backspace", "backspace", *"held")
        await later(pilot, simulated, 0.5)
        await pilot.press("enter", "escape")
        await later(pilot, simulated, 0.0)
        assert app.live_run.state.trials[under_cursor()].label == label
