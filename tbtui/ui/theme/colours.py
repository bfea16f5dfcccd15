"""Colours: which can be read on which, and the nearest of a terminal's 256."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import override

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

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
