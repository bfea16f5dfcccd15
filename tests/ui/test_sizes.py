"""Windows from 80x24 to 300x100: no row is wider than its pane, no pane lies outside."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tbtui.ui.app import TbtuiApp
from tbtui.ui.panes.pane import Pane
from tests.ui.opening import Opener
from tests.ui.picture import settle

SIZES = [(80, 24), (100, 30), (132, 43), (160, 45), (220, 60), (300, 100)]


async def test_rows_fit_their_panes_in_a_small_window(opened: Opener) -> None:
    await sweep(opened, SIZES[:1])


async def test_a_scroll_bar_goes_when_the_rows_fit_again(opened: Opener) -> None:
    async with opened(size=(300, 100)) as pilot:
        app = pilot.app
        assert isinstance(app, TbtuiApp)
        await settle(app)
        await pilot.resize_terminal(140, 45)
        for _ in range(3):
            await settle(app)
            await pilot.pause()
        for pane in app.screen.query(Pane):
            if pane.display and pane.region and pane.max_scroll_y == 0:
                assert not pane.show_vertical_scrollbar, pane


@pytest.mark.slow
async def test_rows_fit_their_panes_while_the_window_changes(opened: Opener) -> None:
    await sweep(opened, [*SIZES, (80, 100), (300, 24), *reversed(SIZES)])


async def sweep(opened: Opener, sizes: list[tuple[int, int]]) -> None:
    """The cockpit, each of its panes in full, and a trial, at each size; where there are several
    also a group, the commands and the runs."""
    async with opened(size=sizes[0]) as pilot:
        app = pilot.app
        assert isinstance(app, TbtuiApp)
        seen: set[tuple[int, int]] = set()
        for size in sizes:
            await pilot.resize_terminal(*size)
            for keys in ((), *((number,) for number in "123456"), ("0", "right", "enter")):
                await pilot.press(*keys)
                await settle(app)
                check(app, size)
            await pilot.press("escape")
            for key in "gcR" if len(sizes) > 1 and size not in seen else "":
                await pilot.press(key)
                await settle(app)
                check(app, size)
                await pilot.press("escape")
            seen.add(size)


def check(app: TbtuiApp, size: tuple[int, int]) -> None:
    strips = app.screen._compositor.render_strips()
    assert len(strips) == size[1]
    assert all(strip.cell_length == size[0] for strip in strips)
    shown = 0
    for pane in app.screen.query(Pane):
        if pane.display and pane.region:
            shown += 1
            assert app.screen.region.contains_region(pane.region), (pane, size)
            width = pane.scrollable_content_region.width
            rows = pane.text.splitlines()
            assert all(cell_len(each) <= width for each in rows), (pane, size)
    assert shown
