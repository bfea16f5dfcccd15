"""The guide in the app: pages, links between them, and the ways in and out."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Markdown, OptionList

from tbtui.resources import guide_pages
from tbtui.ui.base_app import GuideApp
from tbtui.ui.screens.guide import GuideScreen, GuideViewer
from tests.ui.opening import screen_of


def title(pilot: Pilot[None]) -> str:
    """The page that is shown."""
    return screen_of(pilot, GuideScreen).query_one(GuideViewer).navigator.location.stem


@pytest.mark.slow
async def test_pages_are_chosen_walked_through_and_left() -> None:
    app = GuideApp("steering")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert title(pilot) == "steering"
        await pilot.press("n")
        assert title(pilot) == guide_pages()[guide_pages().index("steering") + 1]
        await pilot.press("p")
        assert title(pilot) == "steering"
        app.screen.query_one("#pages", OptionList).focus()
        await pilot.press("home", "down", "enter")
        assert title(pilot) == "first-run"
        before = app.screen.query_one(GuideViewer).scroll_y
        await pilot.press("space")
        assert app.screen.query_one(GuideViewer).scroll_y > before
        await pilot.press("backspace")
        assert title(pilot) == "steering"
        await pilot.press("escape")
    assert app.return_code == 0


async def test_links_lead_to_pages_and_never_out_of_the_guide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = GuideApp("index")
    opened: list[str] = []
    monkeypatch.setattr(app, "open_url", opened.append)
    async with app.run_test() as pilot:
        await pilot.pause()
        document = app.screen.query_one(Markdown)
        for href, page in (("trust.md#neighbours", "trust"), ("../config/table.py", "trust")):
            document.post_message(Markdown.LinkClicked(document, href))
            await pilot.pause()
            assert title(pilot) == page
        document.post_message(Markdown.LinkClicked(document, "https://example.org/x"))
        await pilot.pause()
    assert opened == ["https://example.org/x"]
