"""Panes that grow at their end while somebody looks at them."""

from __future__ import annotations

from textual.message import Message
from textual.strip import Strip

from tbtui.ui.pane import Frame, Pane


class GrowingPane(Pane):
    """At its end it follows: what comes is in sight at once.

    Scrolled away from there it stays where it is, and its title counts what has come since. Back
    at the end, by whatever way, it follows again.
    """

    class Released(Message):
        """It was scrolled away from what it followed."""

        def __init__(self, pane: GrowingPane) -> None:
            super().__init__()
            self.pane = pane

    class Returned(Message):
        """Somebody wants to see what is newest."""

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
        """How many of what it is made of there have been so far: turns, notes."""
        raise NotImplementedError

    @property
    def at_newest(self) -> bool:
        """It is scrolled to where it may follow."""
        return round(self.scroll_y) >= self._end

    @property
    def _end(self) -> int:
        rows = self.max_scroll_y
        return rows if self.newest_row is None else min(rows, self.newest_row)

    def to_newest(self) -> None:
        """Scroll to what came last."""
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
