"""The help: every key and glyph, what works on the screen below first; searched with `/`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple, override

from rich.style import Style
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size
from textual.strip import Strip
from textual.widgets import Input

from tbtui.ui.context import app_of
from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import wrap
from tbtui.ui.input.keys import SCOPE_TITLES, Key, Scope
from tbtui.ui.screens.dialogs import Dialog
from tbtui.ui.textual_seam import Ground, Painted
from tbtui.ui.theme.glyphs import CLOCK_LEGEND, LEGEND

_HELP_WIDTH = 54
"""Cells of an explanation: what a dialog has in 80 columns."""
_HEAD_WIDTH = 10
"""Cells of the key or glyph before it."""
_COLUMN, _GAP = _HELP_WIDTH + _HEAD_WIDTH, 4
"""Cells of a column, and between two."""
_MOST_COLUMNS = 3
_MOUSE = (
    (
        "click",
        "Selects a trial, row, turn or token; on a reward's bar or a task, filters the trials",
    ),
    ("again", "Opens what is selected: a double click; in a list, a second click"),
    ("title", "A click on a pane's title enlarges the pane; another shows all again"),
    (
        "keys",
        "Those in the last row can be clicked, and those at the foot of a dialog; a click"
        " outside a dialog closes it",
    ),
    ("wheel", "Scrolls what is under the pointer; over a trial's terminal it goes back in time"),
    ("drag", "Drag along the clock of a replayed run to any moment of it"),
    ("shift", "Hold it and drag to select text with your terminal, and copy as usual"),
)


class HelpDialog(Dialog[None], Ground):
    """Shows every key and glyph, in as many columns as there is room for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "close"),
        Binding("enter", "close", "close"),
        # With their ids: a person may have given them other keys.
        Binding("question_mark,f1", "close", "close", id="help"),
        Binding("q", "close", "close", id="quit"),
        Binding("g", "guide", "the guide"),
        Binding("slash", "search", "search"),
    ]
    AUTO_FOCUS = "#help-lines"

    def __init__(self, keys: Sequence[Key], here: Sequence[Scope] = ()) -> None:
        """`here`: the scopes of the screen that it was asked for on, which come first."""
        super().__init__()
        self._keys, self._here = keys, here

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            box.border_title = "help"
            box.border_subtitle = "/  search · g  the guide · esc  close"
            search = Input(placeholder="a key, or words of what it does", id="help-search")
            search.display = False
            yield search
            with VerticalScroll(id="help-lines"):
                yield HelpText(self._keys, self._here)

    @override
    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width > _COLUMN * 2, "-wide")
        super().on_resize(event)

    def action_search(self) -> None:
        """Open the box for words."""
        box = self.query_one("#help-search", Input)
        box.display = True
        self.set_focus(box)

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        self.query_one(HelpText).search(event.value)
        self.query_one("#help-lines").scroll_home(animate=False)

    @on(Input.Submitted)
    def _searched(self) -> None:
        self.set_focus(self.query_one("#help-lines"))

    def action_back(self) -> None:
        """Drop the search, or close."""
        box = self.query_one("#help-search", Input)
        if not box.display:
            self.dismiss(None)
            return
        box.value, box.display = "", False
        self.set_focus(self.query_one("#help-lines"))

    def action_close(self) -> None:
        self.dismiss(None)

    def action_guide(self) -> None:
        app_of(self).show_guide()


class HelpText(Painted):
    """The help, of which only the lines in sight are drawn: there are some two hundred."""

    def __init__(self, keys: Sequence[Key], here: Sequence[Scope]) -> None:
        super().__init__()
        self._keys, self._here = keys, here
        self._words = ""
        self._laid_out: tuple[int, str] = (0, "")
        """For which width and words the columns are."""
        self._columns: list[list[HelpLine]] = []

    def search(self, words: str) -> None:
        """Show only what has these words."""
        self._words = words.lower()
        self.refresh(layout=True)

    @override
    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(map(len, self._columns_in(width)))

    @override
    def render_line(self, y: int) -> Strip:
        columns, palette = self._columns_in(self.size.width), app_of(self).palette
        width = min(self.size.width, _COLUMN)
        spans: list[Span] = []
        for lines in columns:
            line = lines[y] if 0 <= y < len(lines) else HelpLine("", "")
            style = palette.accent + Style(bold=True) if line.heading else palette.text
            cells = row(width, (line.head, palette.strong), (line.text, style))
            spans += [(segment.text, segment.style) for segment in cells]
            spans.append((" " * _GAP, None))
        return row(self.size.width, *spans[:-1], base=self.rich_style)

    def _columns_in(self, width: int) -> list[list[HelpLine]]:
        if (width, self._words) != self._laid_out:
            self._laid_out = width, self._words
            count = min(_MOST_COLUMNS, max(1, (width + _GAP) // (_COLUMN + _GAP)))
            sections = help_sections(self._keys, min(width, _COLUMN), self._here, self._words)
            self._columns = _in_columns(list(sections), count)
        return self._columns


class HelpLine(NamedTuple):
    """A key or glyph, and what it means; or a heading."""

    head: str
    text: str
    heading: bool = False


def help_text(keys: Sequence[Key]) -> str:
    """Return the keys by scope, and the legend."""
    sections = help_sections(keys, _COLUMN)
    return "\n".join(f"{line.head}{line.text}" for lines in sections for line in lines)


def help_sections(
    keys: Sequence[Key], width: int, here: Sequence[Scope] = (), words: str = ""
) -> Iterator[list[HelpLine]]:
    """The help by section, in lines of at most `width` cells.

    Args:
        here: the scopes that come first.
        words: what an entry, with its heading, has to have in it.
    """
    sections: list[tuple[str, Iterable[tuple[str, str]]]] = [
        (SCOPE_TITLES[scope], [(key.shown, key.help) for key in keys if key.scope == scope])
        for scope in dict.fromkeys((*here, *SCOPE_TITLES))
    ]
    sections += [("the mouse", _MOUSE), ("what the glyphs mean", LEGEND)]
    if any(key.scope == "replay" for key in keys):
        sections.append(("on the clock", CLOCK_LEGEND))
    found = False
    for heading, entries in sections:
        wanted = [each for each in entries if _has(f"{heading} {' '.join(each)}", words)]
        if wanted:
            found = True
            yield list(_section(heading, wanted, width))
    if not found:
        yield [HelpLine("", f"nothing has {words!r} in it")]


def _has(text: str, words: str) -> bool:
    return all(word in text.lower() for word in words.split())


def _in_columns(sections: list[list[HelpLine]], count: int) -> list[list[HelpLine]]:
    """The sections one below the other, in columns about as long as each other. A section goes on
    in the next column, except for its heading and first entry."""
    lines = [line for section in sections for line in section]
    length = max(1, -(-len(lines) // count))
    columns: list[list[HelpLine]] = []
    while lines and len(columns) < count:
        end = length if len(columns) < count - 1 else len(lines)
        # Not between a heading and its first entry, nor within an entry.
        while 0 < end < len(lines) and (lines[end - 1].heading or _goes_on(lines[end])):
            end += 1
        columns.append(lines[:end])
        lines = lines[end:]
    return columns or [[]]


def _goes_on(line: HelpLine) -> bool:
    return not line.heading and not line.head.strip() and bool(line.text)


def _section(heading: str, entries: Iterable[tuple[str, str]], width: int) -> Iterator[HelpLine]:
    yield HelpLine("", heading, heading=True)
    for head, text in entries:
        yield from _entry(head, text, width)
    yield HelpLine("", "")


def _entry(head: str, text: str, width: int) -> Iterator[HelpLine]:
    """What a key or glyph means; further lines begin below the first."""
    for line in wrap(text, min(_HELP_WIDTH, max(1, width - _HEAD_WIDTH))):
        yield HelpLine(f"  {head:>6}  ", line)
        head = ""
