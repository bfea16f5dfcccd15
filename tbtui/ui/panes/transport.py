"""The line with the clock of a replayed run."""

from __future__ import annotations

from collections.abc import Hashable

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, split_row
from tbtui.ui.drawing.text import clock_time
from tbtui.ui.panes.bars import Line
from tbtui.ui.panes.pane import Frame

_SHORT_SEC = 10.0
"""What is shorter is timed in tenths of a second."""


class TransportLine(Line):
    """The clock's place in the run, or in the opened trial.

    A click or a drag goes there, a click on the mark plays or stops, one on the speed doubles it;
    a wheel goes by ten seconds.
    """

    EVERY = 1

    class Wanted(Message):
        """Somebody pointed at a share of the line, from 0 to 1."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.share = share

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.trial: str | None = None
        """Whose time it shows; None: the run's."""
        self._track = (0, 0)
        """First column and columns of the line."""
        self._speed_at = 0
        """First column of the speed."""
        self._dragged = False
        self._share: float | None = None
        """Where to, not sent to the app yet."""

    def key(self, frame: Frame) -> Hashable:
        if (run := frame.run.replay) is None:
            return None
        clock = run.playback
        return self.trial, clock.position, clock.playing, clock.speed

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        run, palette = frame.run.replay, frame.palette
        if run is None:
            return []
        clock = run.playback
        start, end = run.span(self.trial) if self.trial else (clock.start, clock.end)
        share = (clock.position - start) / (end - start) if end > start else 1.0
        mark = "▶" if clock.playing else "‖"
        style = palette.accent if clock.playing else palette.attention
        left: list[Span] = [(f" {mark} ", style)]
        speed = f"x{clock.speed:g}"
        short = end - start < _SHORT_SEC
        position = min(end, max(start, clock.position)) - start
        right: list[Span] = [
            (f" {clock_time(position, tenths=short)}", palette.strong),
            (f" / {clock_time(end - start, tenths=short)}", palette.muted),
            (f"  {speed:<5} ", palette.text),
        ]
        if share > 1 or share < 0:
            right.insert(0, (" after its end" if share > 1 else " before its start", palette.muted))
        used = sum(len(text) for text, _ in (*left, *right))
        room = max(4, width - used - 1)
        here = round(min(1.0, max(0.0, share)) * (room - 1))
        self._track = (len(left[0][0]), room)
        self._speed_at = width - len(right[-1][0])
        left += [
            ("━" * here, palette.accent),
            ("●", style),
            ("─" * (room - 1 - here), palette.faint),
        ]
        return [split_row(width, left, right, palette.on_surface)]

    async def on_mouse_down(self, event: events.MouseDown) -> None:
        first, cells = self._track
        if event.x < first:
            await self.run_action("app.play")
        elif event.x < first + cells:
            self._dragged = True
            self.capture_mouse()
            self._point(event.x)
        elif event.x >= self._speed_at:
            await self.run_action("app.replay_speed(1)")

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragged:
            self._point(event.x)

    def on_mouse_up(self) -> None:
        self._dragged = False
        self.release_mouse()

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        await self.run_action("app.go('seconds', -10)")

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        await self.run_action("app.go('seconds', 10)")

    def _point(self, x: int) -> None:
        """To this column, once all movements that wait here are known: each place costs time."""
        first, cells = self._track
        if self._share is None:
            self.call_later(self._tell)
        self._share = min(1.0, max(0.0, (x - first) / max(1, cells - 1)))

    def _tell(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            self.post_message(self.Wanted(share))
