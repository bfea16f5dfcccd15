"""The clock of a replayed run: its place in the run, and marks of what happened."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.journal.database import JournalError
from tbtui.ui.context import run_app_of
from tbtui.ui.drawing.rows import Span, split_row
from tbtui.ui.drawing.text import clip, clock_time, visible
from tbtui.ui.panes.bars import LinePane
from tbtui.ui.panes.pane import Frame
from tbtui.ui.theme.glyphs import CLOCK_MARKS
from tbtui.ui.theme.palette import Palette

if TYPE_CHECKING:
    from tbtui.journal.timeline import MarkKind, TimelineMarks
    from tbtui.ui.runs import ReplayedRun

_SHORT_SEC = 10.0
"""What is shorter is timed in tenths of a second."""
_RAREST_LAST: tuple[MarkKind, ...] = ("failure", "step", "evaluation", "broken", "command")
_SPARSE = 6
"""Failed trials are marked where they stand apart: in at most every sixth column."""
_EVERY = 4
"""Marks of steps and evaluations are thinned to at most one in this many columns."""


class TransportLine(LinePane):
    """The clock's place in the run, or in the opened trial.

    Marked with steps, evaluations, failures and commands, as soon as they have been read. A click
    or a drag goes there, a click on ▶ plays or stops, one on the speed doubles it; a wheel goes by
    ten seconds.
    """

    EVERY = 1

    class Wanted(Message):
        """A share of the line, from 0 to 1, was pointed at."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.share = share

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.trial: str | None = None
        """The trial whose time it shows; None: the run's."""
        self._track = (0, 0)
        """First column and columns of the line."""
        self._speed_at = 0
        """First column of the speed."""
        self._dragged = False
        self._share: float | None = None
        """The share pointed at, not sent to the app yet."""

    def on_mount(self) -> None:
        # Not before the first frame.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        run = run_app_of(self).live_run.replay
        if run is not None and run.marks is None:
            self.run_worker(self._read_marks(run), name="marks")

    async def _read_marks(self, run: ReplayedRun) -> None:
        from tbtui.journal.timeline import TimelineMarks, read_marks

        try:
            run.marks = await asyncio.to_thread(read_marks, run.directory)
        except JournalError:
            run.marks = TimelineMarks({})  # the notes have it

    def key(self, frame: Frame) -> Hashable:
        if (run := frame.run.replay) is None:
            return None
        clock = run.playback
        marked = run.marks is not None
        return self.trial, clock.position, clock.playing, clock.speed, run.moved_to, marked

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
        if run.moved_to:
            right.insert(0, (f" {clip(visible(run.moved_to), width // 2)} ", palette.attention))
        used = sum(cell_len(text) for text, _ in (*left, *right))
        room = max(4, width - used - 1)
        here = round(min(1.0, max(0.0, share)) * (room - 1))
        self._track = (len(left[0][0]), room)
        self._speed_at = width - len(right[-1][0])
        marks = mark_columns(run.marks, start, end, room) if run.marks is not None else {}
        left += [
            *_marked_line(0, here, "━", palette.accent, marks, palette),
            ("●", style),
            *_marked_line(here + 1, room, "─", palette.faint, marks, palette),
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
        """Go to this column after all queued movements: each place costs time."""
        first, cells = self._track
        if self._share is None:
            self.call_later(self._send)
        self._share = min(1.0, max(0.0, (x - first) / max(1, cells - 1)))

    def _send(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            self.post_message(self.Wanted(share))


def _marked_line(
    first: int,
    end: int,
    line: str,
    style: Style,
    marks: Mapping[int, MarkKind],
    palette: Palette,
) -> list[Span]:
    """The columns from `first` up to `end`: a line with marks in it."""
    styles: dict[MarkKind, Style] = {
        "command": palette.attention,
        "broken": palette.infrastructure,
        "failure": palette.bad,
        "evaluation": palette.text,
        "step": style,
    }
    spans: list[Span] = []
    at = first
    for place in sorted(place for place in marks if first <= place < end):
        kind = marks[place]
        spans += [(line * (place - at), style), (CLOCK_MARKS[kind], styles[kind])]
        at = place + 1
    return [*spans, (line * (end - at), style)]


def mark_columns(marks: TimelineMarks, start: float, end: float, count: int) -> dict[int, MarkKind]:
    """Which of `count` columns, from `start` to `end`, have a mark; of several the rarest.

    What it costs depends on `count`, and hardly on how many marks there are.
    """
    if end <= start or count < 2:
        return {}
    width = (end - start) / (count - 1)
    found: dict[int, MarkKind] = {}
    for kind in _RAREST_LAST:
        times = marks.times.get(kind, ())
        if kind in ("step", "evaluation"):
            for time in _thinned(times, start, end, count // _EVERY):
                found[round((time - start) / width)] = kind
            continue
        edges = [bisect_left(times, start + (at - 0.5) * width) for at in range(count + 1)]
        # What lies outside belongs to no column at its edge.
        edges[0], edges[-1] = bisect_left(times, start), bisect_right(times, end)
        marked = [at for at in range(count) if edges[at] < edges[at + 1]]
        if kind != "failure" or len(marked) <= count // _SPARSE:
            found |= dict.fromkeys(marked, kind)
    return found


def _thinned(times: tuple[float, ...], start: float, end: float, most: int) -> Iterator[float]:
    """Yield the times from `start` to `end`: each one, or every second, fifth, tenth, ..."""
    first, last = bisect_left(times, start), bisect_right(times, end)
    every = next(
        size * power
        for power in (10**exponent for exponent in range(20))
        for size in (1, 2, 5)
        if (last - first) <= most * size * power or not most
    )
    # The last of each `every`, counted from the run's first.
    for at in range(first + (-first - 1) % every, last, every):
        yield times[at]
