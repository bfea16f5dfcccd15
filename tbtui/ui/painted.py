"""Rows that go when nobody shows them any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import override

from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class PaintedRow(Strip):
    """A row as a widget hands it to Textual's compositor.

    A Strip remembers how it was cut. One that is painted whole thus remembers itself: a cycle,
    which only the collector frees. That was 6,000 objects a second while 64 terminals are shown,
    and 200 ms of the loop each time that they were cleared up.
    """

    __slots__ = ()

    @override
    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        cuts = list(cuts)  # in ascending order; those beyond its end don't count
        return [self] if cuts[:1] == [self.cell_length] else super().divide(cuts)


class Painted(Widget):
    """A widget whose rows are `PaintedRow`s. (A subclass names it last: Textual looks for the
    styles of a class only at its first base.)"""

    @override
    def render_lines(self, crop: Region) -> list[Strip]:
        strips = super().render_lines(crop)
        for strip in strips:
            # It is what Textual keeps for the next paint, too: a copy would be made every time.
            strip.__class__ = PaintedRow
        return strips


def cropped(strip: Strip, left: int, width: int, style: Style | None = None) -> Strip:
    """Its cells from `left` on; `style` lies where it has none.

    One that is as wide as that already is handed back, and unlike `Strip.crop_extend` doesn't
    remember itself for it.
    """
    if left == 0 and strip.cell_length == width:
        return strip
    return strip.crop_extend(left, left + width, style)
