"""Rows of styled text as Strips. Every text that gets here is made harmless on its way."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tbtui.ui.drawing.text import Name, clip, clip_name, visible, wrap
from tbtui.ui.theme.palette import Palette

Span = tuple[str, Style | None]
"""Text and its style."""


def _fit(spans: Iterable[Span], width: int) -> tuple[list[Segment], int]:
    """Spans cut to `width` cells, with `…` where they are cut; and the cells they take.

    A `Name` is cut in its middle.
    """
    segments: list[Segment] = []
    room = width
    for text, style in spans:
        if room <= 0:
            break
        cut = clip_name if isinstance(text, Name) else clip
        shown = cut(visible(text), room)
        if shown:
            segments.append(Segment(shown, style))
            room -= cell_len(shown)
    return segments, width - room


def row(width: int, *spans: Span, base: Style | None = None) -> Strip:
    """Make a row of exactly `width` cells; `base` lies under every span and the padding."""
    segments, used = _fit(spans, width)
    if used < width:
        segments.append(Segment(" " * (width - used)))
    return Strip(Segment.apply_style(segments, base), width)


def split_row(
    width: int, left: Iterable[Span], right: Iterable[Span], base: Style | None = None
) -> Strip:
    """Make a row with `right` at its right end; `left` gives way when both don't fit."""
    tail, tail_width = _fit(right, width)
    head, head_width = _fit(left, max(0, width - tail_width - (1 if tail_width else 0)))
    gap = width - head_width - tail_width
    return Strip(Segment.apply_style([*head, Segment(" " * gap), *tail], base), width)


def sentence(text: str, style: Style, width: int) -> list[Strip]:
    """Make as many rows of a sentence as it takes, each as far indented as the sentence."""
    indent = text[: len(text) - len(text.lstrip())]
    return [
        row(width, (indent, None), (part, style))
        for part in wrap(text.lstrip(), width - 2 * len(indent))
    ]


_REASON_ROWS = 3


def pair(width: int, palette: Palette, name: str, *value: Span) -> Strip:
    """Make a row with a name at the left and its value at the right."""
    return split_row(width, [(f" {name}", palette.muted)], [*value, (" ", None)])


def reason(text: str, palette: Palette, width: int) -> list[Strip]:
    """Make a few indented rows of a reason, however long it is."""
    parts = list(wrap(" ".join(text.split()), width - 4))
    if len(parts) > _REASON_ROWS:
        parts = [*parts[: _REASON_ROWS - 1], " ".join(parts[_REASON_ROWS - 1 :])]
    return [row(width, ("   ", None), (part, palette.text)) for part in parts]
