"""Nothing from a model or a terminal is ever interpreted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets._toast import Toast

from tbtui.ui.app import TbtuiApp
from tbtui.ui.drawing.text import clip, visible, wrap
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.screens.review import RelabelDialog
from tbtui.ui.services import RecordedRun
from tests.ui.hostile import HOSTILE, check_screen, hostile_run
from tests.ui.opening import Opener, app_of, pane, press, window


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_visible_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert "\x1b" not in shown
    for width in (1, 2, 17):
        assert all(row.isprintable() for row in wrap(clip(shown, 300), width))


@pytest.mark.parametrize("text", ["\n".join(HOSTILE[:8]), *HOSTILE[8:]], ids=range(3))
async def test_the_screens_show_it_as_text(opened: Opener, tmp_path: Path, text: str) -> None:
    directory = hostile_run(tmp_path / "run", text)
    async with opened((112, 34), directory=directory) as pilot:
        check_screen(pilot)
        await press(pilot, "enter")
        await pilot.press("n")
        check_screen(pilot)
        assert pane(pilot, "tokens").text


async def test_what_is_said_for_a_moment_is_shown_as_text(tmp_path: Path) -> None:
    markup, escapes, controls = HOSTILE[1:4]
    text = escapes + controls.replace("\0", "") + markup
    directory = hostile_run(tmp_path / "run", text)
    replayed = TbtuiApp(RecordedRun(directory), live=False, recorded=ReplayedRun(directory))
    async with window(replayed, (112, 34)) as pilot:
        # To the note, which is said.
        await pilot.press("greater_than_sign")
        replayed.notify(text, title=text, markup=True)
        await pilot.pause()
        assert len(replayed.screen.query(Toast)) == 1
        check_screen(pilot)
        shown = [strip.text for strip in replayed.screen._compositor.render_strips()]
        for toast in replayed.screen.query(Toast):
            rows = shown[toast.region.y : toast.region.bottom]
            assert visible(text)[:3] in "".join(row[toast.region.x :] for row in rows)
        # Nor does a line that is typed on in begin with it.
        trial = replayed.live_run.state.trials["hostile"]
        await replayed.push_screen(RelabelDialog(replace(trial, relabel_reason=text)))
        await pilot.pause()
        check_screen(pilot)


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
        assert screen.row(0, app_of(pilot).palette).cell_length == 160
        assert screen.plain(0).startswith("after")
        assert "after" in pane(pilot, "terminal").text
        check_screen(pilot)
