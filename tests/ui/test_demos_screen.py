"""Demonstrations in the app: chosen, accepted, dropped, edited; and where there are none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot
from textual.widgets import OptionList, Static, TextArea

from tbtui.journal.demonstrations import Demonstrations
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.screens.demos import DemosScreen
from tests.journal.test_demonstrations import demonstration
from tests.ui.opening import Opener, app_of, press, screen_of
from tests.ui.picture import settle
from tests.ui.styled_text import StyledTextExtension, styled_text


@pytest.fixture
def shown(run_directory: RunDirectory) -> Iterator[Demonstrations]:
    files = Demonstrations(run_directory)
    for turn in (1, 2, 3):
        files.write(demonstration(turn=turn))
    yield files
    shutil.rmtree(files.directory)  # the run is every test's


async def open_screen(pilot: Pilot[int]) -> DemosScreen:
    await settle(app_of(pilot))
    await press(pilot, "f4")
    return screen_of(pilot, DemosScreen)


async def test_each_is_decided_upon_and_the_next_is_chosen(
    opened: Opener, shown: Demonstrations
) -> None:
    async with opened() as pilot:
        screen = await open_screen(pilot)
        for key in ("a", "d"):
            await pilot.press(key)
            await settle(app_of(pilot))
        assert [each.status for each in shown.all()] == ["accepted", "dropped", "pending"]
        assert {each.reviews[0].actor for each in shown.all()[:2]} == {"ann"}
        assert screen.query_one(OptionList).highlighted == 2
        await pilot.press("escape")
        assert not isinstance(app_of(pilot).screen, DemosScreen)


async def test_an_answer_is_edited(opened: Opener, shown: Demonstrations) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        screen = await open_screen(pilot)
        area = screen.query_one(TextArea)
        before = area.text
        await pilot.press("e", "x")
        assert area.text == "x" + before
        await press(pilot, "ctrl+s")
        assert "no JSON" in [str(each.message) for each in app._notifications][-1]
        assert area.text == "x" + before
        await pilot.press("escape")
        assert area.text == before
        await pilot.press("e")
        area.text = before.replace('"ls', '"pwd')
        await press(pilot, "ctrl+s")
        first = shown.all()[0]
        assert first.answer.commands[0].keystrokes == "pwd\n"
        assert (first.status, first.reviews[-1].edited) == ("pending", True)


async def test_none_yet(opened: Opener) -> None:
    async with opened() as pilot:
        screen = await open_screen(pilot)
        assert "no demonstrations yet" in str(screen.query_one("#asked", Static).render())
        await pilot.press("a", "d", "e", "ctrl+s", "escape")
        assert not isinstance(app_of(pilot).screen, DemosScreen)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
async def test_picture(
    opened: Opener, shown: Demonstrations, size: tuple[int, int], snapshot: SnapshotAssertion
) -> None:
    async with opened(size=size) as pilot:
        await open_screen(pilot)
        assert styled_text(app_of(pilot)) == snapshot(extension_class=StyledTextExtension)
