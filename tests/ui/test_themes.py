"""Theme files: the bundled ones, broken ones, NO_COLOR."""

from __future__ import annotations

import itertools
import math
import operator
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.color import Color as RichColor
from rich.color import ColorType
from textual.app import App
from textual.color import Color

from tbtui.resources import themes_dir
from tbtui.ui.panes.pane import Pane
from tbtui.ui.textual_seam import CommandPalette
from tbtui.ui.theme.palette import HEAT_LEVELS, Palette, nearest
from tbtui.ui.theme.themes import ThemeFile, load_themes
from tbtui.ui.user import User
from tests.ui.opening import Opener, app_of
from tests.ui.picture import settle

BUNDLED = sorted(path.stem for path in themes_dir().glob("*.toml"))
XTERM = (
    *("#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5"),
    *("#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff"),
)
LINUX_CONSOLE = (
    *("#000000", "#aa0000", "#00aa00", "#aa5500", "#0000aa", "#aa00aa", "#00aaaa", "#aaaaaa"),
    *("#555555", "#ff5555", "#55ff55", "#ffff55", "#5555ff", "#ff55ff", "#55ffff", "#ffffff"),
)
"""What terminals make of their own sixteen colours."""

MEANINGS = ("foreground", "accent", "attention", "good", "bad", "infrastructure", "frozen")
TEXT = (*MEANINGS, "muted", "faint", "held_out", "training")
GROUNDS = ("background", "surface", "raised")


def bundled(name: str) -> ThemeFile:
    return ThemeFile.read(tomllib.loads((themes_dir() / f"{name}.toml").read_text()))


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("sixteen", [XTERM, LINUX_CONSOLE], ids=["xterm", "console"])
def test_bundled_themes_are_complete_and_legible(name: str, sixteen: tuple[str, ...]) -> None:
    raw = tomllib.loads((themes_dir() / f"{name}.toml").read_text())
    file = ThemeFile.read(raw)
    assert file.name == name
    assert set(raw["colors"]) == set(msgspec.structs.asdict(file.colors))
    assert set(raw["terminal"]) == set(msgspec.structs.asdict(file.terminal))

    def ratio(one: str, other: str) -> float:
        """WCAG 2 contrast of two colours, the terminal's own as `sixteen` has them."""
        colours = (Color.parse(each) for each in (one, other))
        first, second = (c if c.ansi is None else Color.parse(sixteen[c.ansi]) for c in colours)
        return contrast(first, second)

    colors, terminal = file.colors, file.terminal
    least = 7 if name == "tbtui-high-contrast" else 4.5
    for token in TEXT:
        for ground in GROUNDS:
            one_other = (getattr(colors, token), getattr(colors, ground))
            assert ratio(*one_other) >= least, (token, ground, ratio(*one_other))
    rewards = () if file.sixteen else [Palette(file).reward(tenths / 10) for tenths in range(11)]
    for reward, ground in itertools.product(rewards, GROUNDS):
        assert reward.color is not None
        text = reward.color.get_truecolor().hex
        assert ratio(text, getattr(colors, ground)) >= 4.5, (text, ground)
    for one_other in (
        (colors.on_accent, colors.accent),
        (colors.background, colors.attention),
        (terminal.foreground, terminal.background),
    ):
        assert ratio(*one_other) >= least, one_other
    # Signs that stand for something; no text.
    for sign in colors.spending:
        one_other = (sign, colors.background)
        assert ratio(*one_other) >= (2.5 if file.sixteen else 3), one_other


@pytest.mark.parametrize("name", BUNDLED)
def test_tokens_stay_legible_however_surprising(name: str) -> None:
    styles = Palette(bundled(name)).heat
    assert len(styles) == HEAT_LEVELS
    for style in styles[1:]:
        assert style.color is not None
        assert style.bgcolor is not None
        front, back = (
            Color(*c.get_truecolor()) if c.number is None else Color.parse(XTERM[c.number])
            for c in (style.color, style.bgcolor)
        )
        assert contrast(front, back) >= 4.5, style


# Machado, Oliveira and Fernandes (2009), full strength, on linear RGB.
DEFICIENCIES = {
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
}


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_meanings_stay_apart_for_the_colour_blind(deficiency: str) -> None:
    colors = bundled("tbtui-colour-blind").colors
    seen = {
        token: as_seen(Color.parse(getattr(colors, token)), DEFICIENCIES[deficiency])
        for token in MEANINGS
    }
    for (one, here), (other, there) in itertools.combinations(seen.items(), 2):
        # Two is what can just be told apart side by side.
        assert math.dist(here, there) >= 28, (one, other, math.dist(here, there))
    # What is solved and what is merely in focus are not two blues.
    assert math.dist(seen["good"], seen["accent"]) > 50
    plain = bundled("tbtui-dark").colors
    good, bad = (as_seen(Color.parse(c), DEFICIENCIES[deficiency]) for c in (plain.good, plain.bad))
    if deficiency != "none":
        assert math.dist(seen["good"], seen["bad"]) > 2 * math.dist(good, bad)


def as_seen(colour: Color, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour as somebody sees it who lacks a kind of cone."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
    ]
    r, g, b = (min(1.0, max(0.0, sum(map(operator.mul, row, linear)))) for row in matrix)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


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


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "a-colour.toml": ('name = "x"\n[colors]\naccent = "blurple"\n', "colors.accent"),
    "b-toml.toml": ("name = [", "not TOML"),
    "c-unknown.toml": ('name = "x"\n[colors]\nacent = "#fff"\n', "colors.acent"),
    "d-utf8.toml": (b"\xff\xfe", "not UTF-8"),
    "e-ansi.toml": ('name = "x"\n[terminal]\nansi = ["#fff"]\n', "terminal.ansi"),
}


@pytest.mark.slow
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
        assert shown == ["\n".join(problems)]
        themes = set()
        for _ in range(len(BUNDLED) + 1):
            await pilot.press("t")
            themes.add(pilot.app.theme)
        assert themes == {*BUNDLED, "mine"}


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
        for colour in painted_colours(pilot.app):
            assert len(set(colour.get_truecolor())) == 1, colour
        assert "✓" in pilot.app.screen.query_one("#trials", Pane).text


async def test_a_persons_own_themes_are_found_and_the_choice_is_kept(
    opened: Opener, tmp_path: Path
) -> None:
    config, state = tmp_path / "config", tmp_path / "state/tbtui"
    (config / "themes").mkdir(parents=True)
    (config / "themes/mine.toml").write_text('name = "mine"\n[colors]\naccent = "#ff8800"\n')
    (config / "themes/broken.toml").write_text('name = "x"\n[colors]\naccent = "blurple"\n')
    async with opened(user=User.load(config, state), theme=None) as pilot:
        app = app_of(pilot)
        (toast,) = app._notifications
        assert "broken.toml: colors.accent" in str(toast.message)
        app.use_theme("mine")
        await pilot.pause()
        assert app.palette.accent.color is not None
        assert app.palette.accent.color.name == "#ff8800"
    async with opened(user=User.load(config, state), theme=None) as pilot:
        assert pilot.app.theme == "mine"


@pytest.mark.parametrize(
    ("term", "theme"), [("linux", "tbtui-16"), ("xterm-256color", "tbtui-dark")]
)
async def test_terminals_with_sixteen_colours_get_a_theme_of_those(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, term: str, theme: str
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLORTERM", raising=False)
    async with opened(user=User.load(tmp_path, tmp_path), size=(80, 24)) as pilot:
        assert pilot.app.theme == theme


async def test_the_theme_of_sixteen_has_no_other_colour(opened: Opener) -> None:
    async with opened(theme="tbtui-16") as pilot:
        for keys in ((), ("right", "right", "enter")):
            await pilot.press(*keys)
            assert all(colour.is_system_defined for colour in painted_colours(pilot.app))


SURFACE, RAISED, LINES = 234, 235, 236
"""The theme's surface, its chosen rows and headings, and its lines, in 256 colours."""


@pytest.mark.parametrize(("color_term", "exact"), [("", False), ("truecolor", True)])
async def test_where_there_are_256_colours_grounds_and_lines_keep_their_looks(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, color_term: str, exact: bool
) -> None:
    monkeypatch.setenv("TERM", "tmux-256color")
    monkeypatch.setenv("COLORTERM", color_term)
    async with opened(user=User.load(tmp_path, tmp_path), theme="tbtui-dark") as pilot:
        for keys in ((), ("enter",), ("ctrl+p",)):  # panes, another screen, a dialog over it
            await pilot.press(*keys)
            await settle(app_of(pilot))
            await pilot.pause()
            painted = painted_colours(pilot.app)
            kinds = {colour.type for colour in painted}
            if exact:
                assert ColorType.TRUECOLOR in kinds
            else:
                assert kinds == {ColorType.EIGHT_BIT}
                numbers = {colour.number for colour in painted}
                # The palette has a chosen row only once it has found its commands.
                on_top = isinstance(pilot.app.screen, CommandPalette)
                assert numbers >= {SURFACE, LINES} | (set() if on_top else {RAISED})
                assert 17 not in numbers  # navy, which Rich takes


def painted_colours(app: App[Any]) -> set[RichColor]:
    """The colours of all that the screen shows."""
    return {
        colour
        for strip in app.screen._compositor.render_strips()
        for _, style, _ in strip
        for colour in ((style.color, style.bgcolor) if style else ())
        if colour is not None
    }


@pytest.mark.parametrize("name", [name for name in BUNDLED if name != "tbtui-16"])
def test_what_differs_in_a_theme_differs_in_256_colours(name: str) -> None:
    file = bundled(name)

    def painted(colour: str) -> tuple[int, int, int]:
        return nearest(Color.parse(colour).rich_color).get_truecolor()

    grounds = {painted(getattr(file.colors, each)) for each in ("background", "raised")}
    assert len(grounds) == 2
    for each in TEXT:
        text = Color(*painted(getattr(file.colors, each)))
        for ground in grounds:
            assert contrast(text, Color(*ground)) > 3, (each, ground)
