"""The styles that panes draw with, in a theme's colours, on terminals with 256 colours too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import override

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, Gradient
from textual.filter import LineFilter

from tbtui.ui.theme.themes import ThemeFile
from tbtui.view.state import COLOURED_SPENDINGS, Spending

type _Lab = tuple[float, float, float]

FIXED = range(16, 256)
"""The first sixteen are what each person's terminal makes of them."""


def _lab(colour: RichColor) -> _Lab:
    """Convert to Oklab, where distances are as people see them: bottosson.github.io/posts/oklab"""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.get_truecolor().normalized
    )
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@cache
def _fixed() -> tuple[tuple[int, _Lab], ...]:
    return tuple((number, _lab(RichColor.from_ansi(number))) for number in FIXED)


@lru_cache(4096)
def nearest(colour: RichColor) -> RichColor:
    """Return the nearest of the 256; one of them, or the terminal's own, stays as it is."""
    if colour.type is not ColorType.TRUECOLOR:
        return colour
    lightness, a, b = _lab(colour)
    number, _ = min(
        _fixed(),
        key=lambda one: (one[1][0] - lightness) ** 2 + (one[1][1] - a) ** 2 + (one[1][2] - b) ** 2,
    )
    return RichColor.from_ansi(number)


@lru_cache(4096)
def _restyled(style: Style) -> Style:
    color = None if style.color is None else nearest(style.color)
    ground = None if style.bgcolor is None else nearest(style.bgcolor)
    return style + Style.from_color(color, ground)


class EightBit(LineFilter):
    """Puts `nearest` in place of every colour that is painted, for terminals that know only 256:
    tmux and ssh seldom say that they know more.

    Rich takes the nearest corner of a cube that has nothing between 0 and 95: our dark grounds
    became black or navy, the lines between panes teal. Here it is the colour that looks nearest.
    """

    @override
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, None if style is None else _restyled(style), control)
            for text, style, control in segments
        ]


_BLACK, _WHITE = Color(0, 0, 0), Color(255, 255, 255)

LEGIBLE = 4.5
"""The contrast ratio that WCAG 2 (level AA) asks of normal text."""


def contrast(one: Color, other: Color) -> float:
    """WCAG 2's contrast ratio, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def legible_on(ground: Color, *preferred: Color) -> Color:
    """The first colour that is legible; else black or white, one of which always is."""
    if ground.ansi is not None:
        # Nobody knows what the terminal makes of its colours; these two differ most.
        return max(preferred, key=lambda colour: contrast(colour, ground))
    for colour in preferred:
        if contrast(colour, ground) >= LEGIBLE:
            return colour
    return max(_BLACK, _WHITE, key=lambda colour: contrast(colour, ground))


HEAT_LEVELS = 12


def _style(color: str | None = None, *, on: str | None = None, bold: bool | None = None) -> Style:
    return Style(
        color=None if color is None else Color.parse(color).rich_color,
        bgcolor=None if on is None else Color.parse(on).rich_color,
        bold=bold,
    )


def _grounds(heat: tuple[str, ...], sixteen: bool) -> list[Color]:
    """`HEAT_LEVELS - 1` grounds. The terminal's own sixteen colours can't be blended."""
    levels = [index / (HEAT_LEVELS - 1) for index in range(1, HEAT_LEVELS)]
    if sixteen:
        return [Color.parse(heat[min(len(heat) - 1, int(at * len(heat)))]) for at in levels]
    gradient = Gradient.from_colors(*heat)
    return [gradient.get_color(at) for at in levels]


@dataclass(frozen=True)
class Palette:
    """A theme as the styles that panes draw with."""

    file: ThemeFile

    @property
    def name(self) -> str:
        return self.file.name

    @cached_property
    def ground(self) -> Style:
        """The background below everything."""
        return _style(self.file.colors.foreground, on=self.file.colors.background)

    @cached_property
    def text(self) -> Style:
        return _style(self.file.colors.foreground)

    @cached_property
    def strong(self) -> Style:
        return _style(self.file.colors.foreground, bold=True)

    @cached_property
    def muted(self) -> Style:
        return _style(self.file.colors.muted)

    @cached_property
    def faint(self) -> Style:
        return _style(self.file.colors.faint)

    @cached_property
    def line(self) -> Style:
        return _style(self.file.colors.line)

    @cached_property
    def accent(self) -> Style:
        return _style(self.file.colors.accent)

    @cached_property
    def attention(self) -> Style:
        return _style(self.file.colors.attention, bold=True)

    @cached_property
    def good(self) -> Style:
        return _style(self.file.colors.good)

    @cached_property
    def bad(self) -> Style:
        return _style(self.file.colors.bad)

    @cached_property
    def infrastructure(self) -> Style:
        return _style(self.file.colors.infrastructure)

    @cached_property
    def frozen(self) -> Style:
        return _style(self.file.colors.frozen, bold=True)

    @cached_property
    def spending(self) -> dict[Spending, Style]:
        """The colours of what a trial's time goes to."""
        colours = zip(COLOURED_SPENDINGS, self.file.colors.spending, strict=True)
        styles = {name: _style(colour) for name, colour in colours}
        return styles | {"delayed": styles["queue"]}

    @cached_property
    def held_out(self) -> Style:
        return _style(self.file.colors.held_out)

    @cached_property
    def training(self) -> Style:
        return _style(self.file.colors.training)

    @cached_property
    def on_surface(self) -> Style:
        return _style(on=self.file.colors.surface)

    @cached_property
    def badge(self) -> Style:
        """The style of what is important, but needs no action."""
        colors = self.file.colors
        return _style(colors.background, on=colors.attention)

    @cached_property
    def on_raised(self) -> Style:
        return _style(on=self.file.colors.raised)

    @cached_property
    def selected(self) -> Style:
        return _style(self.file.colors.on_accent, on=self.file.colors.accent, bold=True)

    @cached_property
    def terminal(self) -> Style:
        return _style(self.file.terminal.foreground, on=self.file.terminal.background)

    @cached_property
    def ansi(self) -> tuple[RichColor, ...]:
        return tuple(Color.parse(value).rich_color for value in self.file.terminal.ansi)

    @cached_property
    def heat(self) -> tuple[Style, ...]:
        """`HEAT_LEVELS` styles from likely to unlikely; text stays legible on each."""
        colors = self.file.colors
        styles = [Style(color=Color.parse(colors.foreground).rich_color)]
        for ground in _grounds(colors.heat, self.file.sixteen):
            text = legible_on(ground, *map(Color.parse, (colors.foreground, colors.background)))
            styles.append(Style(color=text.rich_color, bgcolor=ground.rich_color))
        return tuple(styles)

    def reward(self, value: float | None) -> Style:
        """The style of a reward, from bad to good; None is infrastructure's."""
        if value is None:
            return self.infrastructure
        if value <= 0 or value >= 1:
            return self.good if value >= 1 else self.bad
        if self.file.sixteen:
            return self.attention
        blend = Color.parse(self.file.colors.bad).blend(Color.parse(self.file.colors.good), value)
        return Style(color=blend.rich_color)
