"""What every pane is: rows of Strips, built only when what they show has changed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Offset, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tbtui.ui.keymap import KeyTable
from tbtui.ui.keys import bindings
from tbtui.ui.live import LiveRun
from tbtui.ui.painted import Painted, cropped
from tbtui.ui.text import visible
from tbtui.ui.theme import Palette
from tbtui.view.estimate import Outlook
from tbtui.view.listing import Listing
from tbtui.view.state import RunState, TrialView


@dataclass(frozen=True, slots=True)
class Frame:
    """All that a pane may draw from at one moment."""

    run: LiveRun
    outlook: Outlook
    palette: Palette
    shown: list[TrialView]
    """The trials under way."""
    selected: TrialView | None
    listed: list[TrialView]
    """The trials of the grid, in its order."""
    listing: Listing
    """How those were chosen and ordered."""
    following: bool = False
    """Nobody has chosen the selected trial: it follows what happens."""
    badge: str = ""
    """What is shown in place of the app's own run, and how; empty for that one."""
    ending: str = ""
    """What the app is doing to end the run, or how it ended; empty while it runs."""
    keys: KeyTable = field(default_factory=KeyTable)
    """Those in force: what a hint says is the key that a person has."""

    @property
    def state(self) -> RunState:
        return self.run.state

    @property
    def now(self) -> float:
        return self.outlook.now


class Redraw(Message):
    """Something was done that should be seen at once."""


class Pane(ScrollView, Painted, can_focus=True):
    """A titled pane of rows. Subclasses say what they depend on and how their rows look."""

    BINDINGS = bindings("panes")
    EVERY: ClassVar[int] = 5
    """Drawn at every nth tick of the app's timer (ten a second)."""

    class TitleClicked(Message):
        """Somebody clicked on the title."""

        def __init__(self, pane: Pane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._rows: list[Strip] = []
        self._key: Hashable = None
        self._title = ""
        self._ground = Style.null()

    def on_mount(self) -> None:
        self._ground = self.rich_style

    def key(self, frame: Frame) -> Hashable:
        """Rows are built again when this has changed."""
        return frame.state.version

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        """The pane's rows, each `width` cells."""
        raise NotImplementedError

    def title(self, frame: Frame) -> str:
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Draw the frame, if anybody can see it and it differs from the last one."""
        size = self.scrollable_content_region.size
        if not self.display or not size:
            return
        self.retitle(self.title(frame))
        key = (size, frame.palette.name, self.key(frame))
        if key == self._key:
            return
        self._key = key
        self.lay_ground(frame.palette)
        self.replace(self.build(frame, size.width, size.height), size.width)

    def ground(self, palette: Palette) -> Style:
        """What lies under the rows."""
        return palette.ground

    def lay_ground(self, palette: Palette) -> None:
        """Where no row is, nothing else would draw it anew in another theme."""
        ground = self.ground(palette)
        if ground != self._ground:
            self._ground = ground
            self.refresh()

    def replace(self, rows: list[Strip], width: int) -> None:
        if rows == self._rows:
            return
        self._rows = rows
        self.extend(Size(width, len(rows)))
        self.refresh()

    def extend(self, extent: Size) -> None:
        """There are so many columns and rows to scroll in."""
        scrolls = extent.height > self.container_size.height
        if scrolls == self.show_vertical_scrollbar and extent.width == self.virtual_size.width:
            # Nothing moves. Textual would lay out the whole screen for it, and paint it anew.
            self.set_reactive(ScrollView.virtual_size, extent)
        else:
            self.virtual_size = extent
        # A layout alone leaves the scroll bar, and its column, where the rows now fill the pane.
        self._scroll_update(extent)

    def retitle(self, title: str) -> None:
        if title and not self.styles.border_left[0]:
            # Beside a corner Textual leaves a cell on either side itself.
            title = f" {title} "
        if title != self._title:
            self._title = title
            # Content, not str: a string would be read as markup.
            self.border_title = Content(visible(title)) if title else None

    def render_line(self, y: int) -> Strip:
        index = y + round(self.scroll_y)
        if not 0 <= index < len(self._rows):
            return Strip.blank(self.size.width, self._ground)
        return cropped(self._rows[index], 0, self.size.width).apply_style(self._ground)

    def reveal(self, line: int) -> None:
        """Scroll no more than it takes to show a row."""
        top, height = round(self.scroll_y), self.scrollable_content_region.height
        if line < top:
            self.move_to(line)
        elif line >= top + height:
            self.move_to(line - height + 1)

    def move_to(self, top: float) -> None:
        """Let this row be the topmost, as far as there are rows below; also of those that have
        been added since the last layout."""
        self.scroll_to(y=top, animate=False, force=True)

    def place_of(self, event: events.MouseEvent) -> Offset | None:
        """Column and row, of all rows, under the pointer; None: it is not on the rows' ground."""
        at = event.get_content_offset(self)
        return None if at is None else at + Offset(0, round(self.scroll_y))

    async def _on_click(self, event: events.Click) -> None:
        # Textual calls this beside a subclass's own `on_click`.
        if self._title and event.y < self.gutter.top:
            self.post_message(self.TitleClicked(self))

    def action_newest(self) -> None:
        """To the end."""
        self.move_to(self.max_scroll_y)

    def action_oldest(self) -> None:
        """To the beginning."""
        self.move_to(0)

    def redraw(self) -> None:
        self.post_message(Redraw())

    @property
    def contents(self) -> str:
        """What is copied of it, and read in a pager."""
        return self.text

    @property
    def text(self) -> str:
        """All rows as plain text."""
        return "\n".join(strip.text.rstrip() for strip in self._rows)
