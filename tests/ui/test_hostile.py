"""Nothing from a model or a terminal is ever interpreted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.ui.text import clip, visible, wrap
from tests.ui.hostile import HOSTILE, check_screen, hostile_run
from tests.ui.opening import Opener, app_of, pane
from tests.ui.picture import settle


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_visible_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert "\x1b" not in shown
    for width in (1, 2, 17):
        assert all(row.isprintable() for row in wrap(clip(shown, 300), width))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_the_screens_show_it_as_text(opened: Opener, tmp_path: Path, text: str) -> None:
    directory = hostile_run(tmp_path / "run", text)
    async with opened((112, 34), directory=directory) as pilot:
        check_screen(pilot)
        await pilot.press("enter")
        await settle(app_of(pilot))
        await pilot.press("n")
        check_screen(pilot)
        assert pane(pilot, "tokens").text


@pytest.mark.slow
async def test_a_terminal_may_misbehave_only_within_itself(opened: Opener, tmp_path: Path) -> None:
    hostile = (
        "\x1b[8;9999;9999t\x1b[999999999b\x1b[999999999L\x1b[?3h\x1b[?1049h\x1b#8"
        "\x1bP" + "q" * 10_000 + "\x1b\\\x1b]52;c;aGk=\x07after"
    )
    async with opened(directory=hostile_run(tmp_path / "run", hostile)) as pilot:
        screen = app_of(pilot).live_run.recordings.screen("hostile")
        assert screen is not None
        assert (screen.columns, screen.rows) == (160, 40)
        assert screen.plain(0).startswith("after")
        assert "after" in pane(pilot, "terminal").text
        check_screen(pilot)
