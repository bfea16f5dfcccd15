"""The screen as text that a person can compare: its rows, and below them the style of each cell.

A style has a letter; `a40 b3` says that a row's first 40 cells have the first style and the next
three the second. It takes a tenth of an SVG, and a diff of it says what has changed.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual._compositor import LayoutUpdate
from textual.app import App
from textual.strip import Strip


class StyledTextExtension(SingleFileSnapshotExtension):
    """Each snapshot is a file of text."""

    _write_mode = WriteMode.TEXT
    _file_extension = "txt"

    def serialize(self, data: object, **_: object) -> str:
        return str(data)


def styled_text(app: App[Any]) -> str:
    """What is on the screen now; a dialog with what it lies over."""
    letters: dict[str, str] = {}
    names = _names()
    rows, styles = [], []
    for strip in _strips(app):
        rows.append("".join(segment.text for segment in strip).rstrip())
        runs = [
            (described(segment.style), cell_len(segment.text)) for segment in strip if segment.text
        ]
        parts = []
        for style, group in itertools.groupby(runs, key=lambda run: run[0]):
            if style not in letters:
                letters[style] = next(names)
            parts.append(f"{letters[style]}{sum(cells for _, cells in group)}")
        styles.append(" ".join(parts))
    legend = [f"{letter} {style}" for style, letter in letters.items()]
    return "\n".join([*rows, "", *styles, "", *legend, ""])


def _strips(app: App[Any]) -> list[Strip]:
    """Its rows; those of what lies below a dialog too."""
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(update, LayoutUpdate)
    return [Strip.join(parts) for parts in update.strips]


def _names() -> Iterator[str]:
    """a to z, A to Z, then aa, ab, and so on."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_letters, repeat=length):
            yield "".join(letters)


_MARKS: Mapping[str, Callable[[Style], bool | None]] = MappingProxyType(
    {
        "bold": lambda style: style.bold,
        "dim": lambda style: style.dim,
        "italic": lambda style: style.italic,
        "underline": lambda style: style.underline,
        "reverse": lambda style: style.reverse,
        "strike": lambda style: style.strike,
    }
)


def described(style: Style | None) -> str:
    """`bold #6cb6ff on #11151c`, as a terminal would have it."""
    if style is None:
        return "none"
    marks = [name for name, attribute in _MARKS.items() if attribute(style)]
    return " ".join([*marks, _colour(style.color), "on", _colour(style.bgcolor)])


def _colour(colour: Color | None) -> str:
    if colour is None:
        return "default"
    return colour.name if colour.triplet is None else colour.triplet.hex
