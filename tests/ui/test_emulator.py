"""A terminal's rows as they are shown."""

from __future__ import annotations

from tbtui.ui.terminal.emulator import Emulator
from tbtui.ui.theme.palette import Palette
from tests.ui.test_themes import bundled


def test_a_full_screen_program_has_a_screen_of_its_own() -> None:
    emulator, palette = Emulator(10, 3), Palette(bundled("tbtui-dark"))

    def shown() -> list[str]:
        return [emulator.row(y, palette).text.rstrip() for y in range(3)]

    emulator.feed("one\r\ntwo\r\nthree")
    assert shown() == ["one", "two", "three"]
    emulator.feed("\x1b[?1049h\x1b[Hfull")
    assert shown() == ["full", "", ""]
    emulator.feed("\x1b[?1049l")
    assert shown() == ["one", "two", "three"]
