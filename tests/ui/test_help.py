"""The help: searched, and in columns where there is room."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from tbtui.ui.input.keys import KEYS
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.help import HelpDialog, HelpText, help_sections, help_text
from tests.ui.opening import Opener


@pytest.mark.parametrize(("width", "columns"), [(80, 1), (160, 2), (240, 3)])
async def test_wide_windows_have_more_columns_and_each_line_is_there_once(
    opened: Opener, width: int, columns: int
) -> None:
    async with opened((width, 45)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = pilot.app.screen.query_one(HelpText)
        shown = text._columns_in(text.size.width)
        assert len(shown) == columns
        assert isinstance(pilot.app.screen, HelpDialog)
        keys = pilot.app.screen._keys
        every = [line for part in help_sections(keys, 64, Cockpit.SCOPES) for line in part]
        assert [line for column in shown for line in column] == every
        heights = [len(column) for column in shown]
        assert max(heights) <= len(every) // columns + 8
        last = text.render_line(1).text
        assert all(column[1].text in last for column in shown)


async def test_help_is_searched(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await pilot.press("question_mark", "slash", *"freeze")
        await pilot.pause()
        text = pilot.app.screen.query_one(HelpText)
        lines = [text.render_line(y).text for y in range(text.size.height)]
        assert any(" z " in line and "Freeze the trial now" in line for line in lines)
        assert not any("Open the selected trial" in line for line in lines)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, HelpDialog)
        assert not pilot.app.screen.query_one(Input).display
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Cockpit)


def test_what_is_not_there_is_said() -> None:
    ((line,),) = help_sections(KEYS, 64, words="zzz")
    assert line.text == "nothing has 'zzz' in it"
    assert "Freeze" in help_text(KEYS)
