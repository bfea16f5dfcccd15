"""The base of every pane: rows of Strips, rebuilt only when what they show has changed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, override

from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Offset, Size
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import KeyTable, bindings
from tbtui.ui.runs import LiveRun
from tbtui.ui.textual_seam import RowsView, cropped
from tbtui.ui.theme.palette import Palette
from tbtui.view.listing import Listing
from tbtui.view.state import RunState, TrialView
from tbtui.view.times import Outlook

MOMENT = 3
"""Beats between two moments of the run that are shown: what counts trials, or says what one does,
is drawn at the same beats everywhere, and so tells of the same moment."""


@dataclass(frozen=True, slots=True)
class Frame:
    """All that panes draw, at one moment."""

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
    opened: str | None = None
    """The trial that the screen is about; None: the selected one."""
    following: bool = False
    """Nobody has chosen the selected trial: it follows what happens."""
    badge: str = ""
    """What is shown in place of the app's own run, and how; empty for that one."""
    ending: str = ""
    """What the app is doing to end the run, or how it ended; empty while it runs."""
    of_moment: bool = True
    """What counts trials, or says what one does, is drawn."""
    keys: KeyTable = field(default_factory=KeyTable)
    """Those in force: what a hint says is the key that a person has."""

    @property
    def state(self) -> RunState:
        return self.run.state

    @property
    def now(self) -> float:
        return self.outlook.now


class Redraw(Message):
    """Asks the app to draw at once."""


class Pane(RowsView, can_focus=True):
    """A titled pane of rows. Subclasses say what they depend on and how their rows look."""

    BINDINGS = bindings("panes")
    EVERY: ClassVar[int] = 2 * MOMENT
    """Drawn at every nth beat, of ten a second."""

    class TitleClicked(Message):
        """The title was clicked."""

        def __init__(self, pane: Pane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._rows: list[Strip] = []
        self._header = 0
        """The first rows, which stay while the rest scrolls: names of columns."""
        self._key: Hashable = None
        self._title = ""
        self._ground = Style.null()

    def on_mount(self) -> None:
        self._ground = self.rich_style

    def key(self, frame: Frame) -> Hashable:
        """What the rows depend on: they are built again when this has changed."""
        return frame.state.version

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        """The pane's rows, each `width` cells."""
        raise NotImplementedError

    def title(self, frame: Frame) -> str:
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Draw the frame, if the pane is visible and its content has changed."""
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
        """The background below the rows."""
        return palette.ground

    def lay_ground(self, palette: Palette) -> None:
        """Draw the ground anew in another theme, where no row is."""
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

    def retitle(self, title: str) -> None:
        if title and not self.styles.border_left[0]:
            # Beside a corner Textual leaves a cell on either side itself.
            title = f" {title} "
        if title != self._title:
            self._title = title
            # Content, not str: a string would be read as markup.
            self.border_title = Content(visible(title)) if title else None

    @property
    def header(self) -> int:
        """The rows at the top that stay; none where nothing but them would be in sight."""
        return self._header if self.scrollable_content_region.height > self._header else 0

    def row_at(self, y: int) -> int:
        """The row, of all, that a line of the pane shows."""
        return y if y < self.header else y + round(self.scroll_y)

    def render_line(self, y: int) -> Strip:
        index = self.row_at(y)
        if not 0 <= index < len(self._rows):
            return Strip.blank(self.size.width, self._ground)
        return cropped(self._rows[index], 0, self.size.width).apply_style(self._ground)

    def reveal(self, line: int) -> None:
        """Scroll as little as shows a row."""
        top, height = round(self.scroll_y), self.scrollable_content_region.height
        if line < top + self.header:
            self.move_to(max(0, line - self.header))
        elif line >= top + height:
            self.move_to(line - height + 1)

    def move_to(self, top: float) -> None:
        """Scroll so that this row is the topmost, as far as there are rows below, those added since
        the last layout among them."""
        self.scroll_to(y=top, animate=False, force=True)

    def place_of(self, event: events.MouseEvent) -> Offset | None:
        """Column and row, of all rows, under the pointer; None: it is not on the rows' ground."""
        at = event.get_content_offset(self)
        return None if at is None else Offset(at.x, self.row_at(at.y))

    @override
    def title_clicked(self) -> None:
        if self._title:
            self.post_message(self.TitleClicked(self))

    def action_newest(self) -> None:
        """Scroll to the end."""
        self.move_to(self.max_scroll_y)

    def action_oldest(self) -> None:
        """Scroll to the beginning."""
        self.move_to(0)

    def redraw(self) -> None:
        self.post_message(Redraw())

    @property
    def contents(self) -> str:
        """The text to copy, and to open in a pager."""
        return self.text

    @property
    def text(self) -> str:
        """All rows as plain text."""
        return "\n".join(strip.text.rstrip() for strip in self._rows)


class GrowingPane(Pane):
    """A pane that follows its end, so that new content is visible at once.

    Scrolled away from there it stays where it is, and its title counts what has come since. Back
    at the end, by whatever way, it follows again.
    """

    class Released(Message):
        """The pane was scrolled away from its end."""

        def __init__(self, pane: GrowingPane) -> None:
            super().__init__()
            self.pane = pane

    class Returned(Message):
        """The newest content was asked for."""

        def __init__(self, pane: GrowingPane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.follow = True
        self.unseen = 0
        """How many have come since it stopped to follow."""
        self._seen: int | None = None
        """How many there were when it followed last; None: nothing was shown yet."""
        self.newest_row: int | None = None
        """The first row of what came last, where its beginning has to be in sight."""
        self._moving = False
        """It scrolls by itself, which means nothing."""

    def count(self, frame: Frame) -> int:
        """Return how many items (turns, notes) there have been so far."""
        raise NotImplementedError

    @property
    def at_newest(self) -> bool:
        """Whether it is scrolled to its end, where it follows."""
        return round(self.scroll_y) >= self._end

    @property
    def _end(self) -> int:
        rows = self.max_scroll_y
        return rows if self.newest_row is None else min(rows, self.newest_row - self.header)

    def to_newest(self) -> None:
        """Scroll to the newest item."""
        self.move_to(self._end)

    def show(self, frame: Frame) -> None:
        count = self.count(frame)
        if self.follow or self._seen is None or count < self._seen:
            self._seen = count
        self.unseen = count - self._seen
        super().show(frame)

    def replace(self, rows: list[Strip], width: int) -> None:
        super().replace(rows, width)
        if self.follow:
            self.to_newest()

    def retitle(self, title: str) -> None:
        super().retitle(f"{title} · {self.unseen:,} new" if self.unseen else title)

    def move_to(self, top: float) -> None:
        self._moving = True
        super().move_to(top)
        self._moving = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._moving:
            return
        before, self.follow = self.follow, self.at_newest
        if before and not self.follow:
            self.post_message(self.Released(self))

    def action_newest(self) -> None:
        self.follow = True
        self.to_newest()
        self.post_message(self.Returned(self))
        self.redraw()

    def action_oldest(self) -> None:
        self.follow = False
        super().action_oldest()
        self.redraw()
