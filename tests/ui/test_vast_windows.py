"""A very large window shows more, not only larger panes."""

from __future__ import annotations

import pytest

from tests.ui.opening import Opener, app_of, pane
from tests.ui.picture import settle


async def test_a_vast_cockpit_shows_the_turns_of_the_selected_trial(opened: Opener) -> None:
    async with opened(size=(300, 100)) as pilot:
        await settle(app_of(pilot))
        turns = pane(pilot, "turns")
        assert turns.display
        assert turns.region.x >= pane(pilot, "terminal").region.right
        first = app_of(pilot).frames.selected()
        assert first is not None
        assert "▸ 1 " in turns.text
        before = turns.text
        await pilot.press("down", "down")
        await settle(app_of(pilot))
        assert app_of(pilot).frames.selected() != first
        assert turns.text != before
        await pilot.press("2")
        assert not turns.display
        assert pane(pilot, "terminal").region.width >= 290


@pytest.mark.parametrize("size", [(80, 24), (160, 45), (300, 50)])
async def test_a_smaller_one_does_not(opened: Opener, size: tuple[int, int]) -> None:
    async with opened(size=size) as pilot:
        assert not pane(pilot, "turns").display


async def test_the_header_links_to_the_runs_files(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        links = {
            segment.style.link
            for segment in pane(pilot, "status").render_line(0)
            if segment.style is not None and segment.style.link
        }
        assert len(links) == 1
        link = links.pop()
        assert link.startswith("file://")
        assert link.endswith(str(app.live_run.directory.path))
