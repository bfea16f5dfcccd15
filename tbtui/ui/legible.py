"""Which colours can be read on which."""

from __future__ import annotations

from textual.color import Color

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
