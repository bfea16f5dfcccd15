"""Rows that several panes are made of."""

from __future__ import annotations

from textual.strip import Strip

from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.text import wrap
from tbtui.ui.theme import Palette

_REASON_ROWS = 3


def pair(width: int, palette: Palette, name: str, *value: Span) -> Strip:
    """A name at the left, what it is at the right."""
    return split_row(width, [(f" {name}", palette.muted)], [*value, (" ", None)])


def reason(text: str, palette: Palette, width: int) -> list[Strip]:
    """Somebody else's words, indented, in few rows however long they are."""
    parts = list(wrap(" ".join(text.split()), width - 4))
    if len(parts) > _REASON_ROWS:
        parts = [*parts[: _REASON_ROWS - 1], " ".join(parts[_REASON_ROWS - 1 :])]
    return [row(width, ("   ", None), (part, palette.text)) for part in parts]
