"""Windows from 80x24 to 300x100: all fits, and a very large one shows more."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tbtui.ui.app import TbtuiApp
from tbtui.ui.panes.pane import Pane
from tests.ui.opening import Opener, app_of, pane, press, rest
from tests.ui.picture import settle

SIZES = [(80, 24), (132, 43), (300, 100)]


async def test_rows_fit_their_panes_in_a_small_window(opened: Opener) -> None:
    await sweep(opened, SIZES[:1])


async def test_a_vast_cockpit_shows_the_turns_of_the_selected_trial(opened: Opener) -> None:
    async with opened(size=(300, 100)) as pilot:
        turns = pane(pilot, "turns")
        assert turns.display
        assert turns.region.x >= pane(pilot, "terminal").region.right
        first = app_of(pilot).frames.selected()
        assert first is not None
        assert "▸ 1 " in turns.text
        before = turns.text
        await press(pilot, "down", "down")
        assert app_of(pilot).frames.selected() != first
        assert turns.text != before
        await pilot.press("2")
        assert not turns.display
        assert pane(pilot, "terminal").region.width >= 290
        await pilot.press("0")
        for size in ((80, 24), (160, 45), (300, 50)):
            await pilot.resize_terminal(*size)
            await rest(pilot)
            assert not turns.display, size


async def test_a_scroll_bar_goes_when_the_rows_fit_again(opened: Opener) -> None:
    async with opened(size=(300, 100)) as pilot:
        await pilot.resize_terminal(140, 45)
        for _ in range(3):
            await rest(pilot)
        for each in pilot.app.screen.query(Pane):
            if each.display and each.region and each.max_scroll_y == 0:
                assert not each.show_vertical_scrollbar, each


@pytest.mark.slow
async def test_rows_fit_their_panes_while_the_window_changes(opened: Opener) -> None:
    await sweep(opened, [*SIZES, (80, 100), (300, 24), SIZES[0]])


async def sweep(opened: Opener, sizes: list[tuple[int, int]]) -> None:
    """The cockpit, each of its panes in full, and a trial, at each size; where there are several
    also a group, the commands and the runs."""
    async with opened(size=sizes[0]) as pilot:
        app = app_of(pilot)
        for place, size in enumerate(sizes):
            await pilot.resize_terminal(*size)
            for keys in ((), *((number,) for number in "123456"), ("0", "right", "enter")):
                await pilot.press(*keys)
                await settle(app)
                check(app, size)
            await pilot.press("escape")
            for key in "gcR" if 0 < place < len(sizes) - 1 else "":
                await press(pilot, key)
                check(app, size)
                await pilot.press("escape")


def check(app: TbtuiApp, size: tuple[int, int]) -> None:
    strips = app.screen._compositor.render_strips()
    assert len(strips) == size[1]
    assert all(strip.cell_length == size[0] for strip in strips)
    shown = [each for each in app.screen.query(Pane) if each.display and each.region]
    assert shown
    for each in shown:
        assert app.screen.region.contains_region(each.region), (each, size)
        width = each.scrollable_content_region.width
        assert all(cell_len(row) <= width for row in each.text.splitlines()), (each, size)
