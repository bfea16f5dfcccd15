"""Rows of styled text as Strips. Every text that gets here is made harmless on its way."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tbtui.ui.text import clip, visible

Span = tuple[str, Style | None]
"""Text and its style."""


def _fit(spans: Iterable[Span], width: int) -> tuple[list[Segment], int]:
    """Spans cut to `width` cells, with `…` where they are cut; and the cells they take."""
    segments: list[Segment] = []
    room = width
    for text, style in spans:
        if room <= 0:
            break
        shown = clip(visible(text), room)
        if shown:
            segments.append(Segment(shown, style))
            room -= cell_len(shown)
    return segments, width - room


def row(width: int, *spans: Span, base: Style | None = None) -> Strip:
    """A row of exactly `width` cells; `base` lies under every span and the padding."""
    segments, used = _fit(spans, width)
    if used < width:
        segments.append(Segment(" " * (width - used)))
    return Strip(Segment.apply_style(segments, base), width)


def split_row(
    width: int, left: Iterable[Span], right: Iterable[Span], base: Style | None = None
) -> Strip:
    """A row with `right` at its right end; `left` gives way when both don't fit."""
    tail, tail_width = _fit(right, width)
    head, head_width = _fit(left, max(0, width - tail_width - (1 if tail_width else 0)))
    gap = width - head_width - tail_width
    return Strip(Segment.apply_style([*head, Segment(" " * gap), *tail], base), width)
