"""Theme files: the bundled ones, broken ones, NO_COLOR."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from conftest import Opener
from textual.color import Color

from tbtui.resources import themes_dir
from tbtui.ui.theme import HEAT_LEVELS, Palette, ThemeFile, load_themes


@pytest.mark.parametrize("name", ["tbtui-dark", "tbtui-light"])
def test_bundled_themes_are_complete_and_legible(name: str) -> None:
    raw = tomllib.loads((themes_dir() / f"{name}.toml").read_text())
    file = ThemeFile.read(raw)
    assert set(raw["colors"]) == set(msgspec.structs.asdict(file.colors))
    assert set(raw["terminal"]) == set(msgspec.structs.asdict(file.terminal))
    background = Color.parse(file.colors.background)
    for token, least in [("foreground", 9), ("muted", 4.4), ("accent", 4.5), ("good", 4.4),
                         ("bad", 4.4), ("attention", 4.4), ("infrastructure", 4.4)]:  # fmt: skip
        colour = Color.parse(getattr(file.colors, token))
        assert background.get_contrast_text(1.0) != background
        assert contrast(colour, background) >= least, token
    styles = Palette(file).heat
    assert len(styles) == HEAT_LEVELS
    for style in styles[1:]:
        assert style.color is not None
        assert style.bgcolor is not None
        front, back = style.color.get_truecolor(), style.bgcolor.get_truecolor()
        assert contrast(Color(*front), Color(*back)) >= 2.9


def contrast(one: Color, other: Color) -> float:
    """WCAG 2 contrast ratio."""

    def luminance(colour: Color) -> float:
        parts = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_defaults_are_the_dark_theme() -> None:
    raw = tomllib.loads((themes_dir() / "tbtui-dark.toml").read_text())
    assert ThemeFile.read(raw) == ThemeFile()


BROKEN = {
    "a-colour.toml": ('name = "x"\n[colors]\naccent = "blurple"\n', "colors.accent"),
    "b-toml.toml": ("name = [", "not TOML"),
    "c-unknown.toml": ('name = "x"\n[colors]\nacent = "#fff"\n', "colors.acent"),
    "d-utf8.toml": (b"\xff\xfe", "not UTF-8"),
    "e-ansi.toml": ('name = "x"\n[terminal]\nansi = ["#fff"]\n', "terminal.ansi"),
}


async def test_broken_themes_are_named_and_the_others_work(opened: Opener, tmp_path: Path) -> None:
    for name, (content, _) in BROKEN.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "mine.toml").write_text('name = "mine"\n[colors]\naccent = "#ff8800"\n')
    problems = load_themes(tmp_path).problems
    assert len(problems) == len(BROKEN)
    for problem, (name, (_, word)) in zip(problems, BROKEN.items(), strict=True):
        assert name in problem
        assert word in problem
    async with opened(theme_dirs=[themes_dir(), tmp_path]) as pilot:
        shown = [str(toast.message) for toast in pilot.app._notifications]
        assert shown == list(problems)
        themes = set()
        for _ in range(4):
            await pilot.press("t")
            themes.add(pilot.app.theme)
        assert themes == {"tbtui-dark", "tbtui-light", "mine"}


async def test_without_any_theme_file_there_are_still_colours(
    opened: Opener, tmp_path: Path
) -> None:
    async with opened(theme_dirs=[tmp_path]) as pilot:
        assert pilot.app.theme == "tbtui-dark"


async def test_no_color_leaves_glyphs_words_and_shades_of_grey(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened() as pilot:
        for strip in pilot.app.screen._compositor.render_strips():
            for segment in strip:
                for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    if colour is not None:
                        red, green, blue = colour.get_truecolor()
                        assert red == green == blue
        assert "✓" in pilot.app.screen.query_one("#trials").text  # type: ignore[attr-defined]
