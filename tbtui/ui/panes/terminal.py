"""One trial's terminal, as large as there is room."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import row
from tbtui.ui.drawing.text import elapsed, wrap
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.panes.story import asks_row, story_key, story_row
from tbtui.ui.terminal.recordings import Scrub
from tbtui.ui.textual_seam import cropped
from tbtui.ui.theme.glyphs import trial_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.current import active_seconds
from tbtui.view.state import TrialView
from tbtui.view.waiting import doing

if TYPE_CHECKING:
    from tbtui.ui.terminal.emulator import Emulator

_CURSOR = Style(reverse=True)
_CAPTIONED = 7
"""Rows from which on there is room for two lines beside the terminal."""


class TerminalPane(Pane):
    """Shows the active part of a terminal: the rows down to the last used one."""

    EVERY = 1

    class Scrubbed(Message):
        """An earlier moment (-1), a later one (1) or now (0) was asked for."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    scrub: Scrub | None = None
    """The recording for looking back, where that can be done."""
    at: float | None = None
    """Seconds since the epoch: the moment that is looked back to; None: as the run stands."""
    _screen: Emulator | None = None
    _titled, _said = "", ""
    """The trial that the title named last, and what it was."""

    def __init__(self, id: str, *, names_trial: bool = True) -> None:
        """`names_trial`: the title says which trial it is; not where another line does."""
        super().__init__(id)
        self.names_trial = names_trial

    def on_unmount(self) -> None:
        if self.scrub is not None:
            self.scrub.close()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scrub(-1, event)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scrub(1, event)

    def _scrub(self, direction: int, event: events.MouseEvent) -> None:
        """Scroll back in time, where that is possible."""
        if self.scrub is not None:
            event.stop()
            self.post_message(self.Scrubbed(direction))

    def action_newest(self) -> None:
        self.post_message(self.Scrubbed(0))

    def show(self, frame: Frame) -> None:
        self._screen = self._find_screen(frame)
        super().show(frame)

    def _find_screen(self, frame: Frame) -> Emulator | None:
        if frame.selected is None:
            return None
        if self.scrub is not None and self.at is not None:
            return self.scrub.screen(self.at)
        return frame.run.recordings.screen(frame.selected.trial)

    @property
    def contents(self) -> str:
        screen = self._screen
        if screen is None:
            return ""
        return "\n".join(screen.plain(y) for y in range(screen.used_rows())).rstrip()

    def title(self, frame: Frame) -> str:
        trial = frame.selected
        if trial is None:
            return "terminal"
        if not self.names_trial:
            screen = self._screen
            size = f"terminal {screen.columns}x{screen.rows}" if screen else "terminal"
            if self.at is None or trial.started_at is None:
                return size
            # How far into the trial, as the clock on the wall went.
            return (
                f"{size} · rewound to {elapsed(self.at - trial.started_at)}"
                f" · {frame.keys.name_of('scrub-now')} {'live' if trial.live else 'to the end'}"
            )
        if not frame.of_moment and trial.trial == self._titled:
            # What the trial does is said at the moment at which its tile says it.
            return self._said
        glyph = trial_glyph(trial, frame.palette).char
        time = elapsed(active_seconds(trial, frame.now))
        following = " · following" if frame.following else ""
        self._titled = trial.trial
        self._said = f"{trial.label} {glyph} {doing(trial)} · {time}{following}"
        return self._said

    def ground(self, palette: Palette) -> Style:
        return palette.terminal

    def key(self, frame: Frame) -> Hashable:
        trial = frame.selected
        if trial is None:
            return None
        screen = self._screen
        version = screen.version if screen else None
        story = story_key(trial) if self.names_trial else None
        return trial.trial, trial.live, trial.outcome, self.at is None, version, story

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, trial = frame.palette, frame.selected
        if trial is None:
            return [row(width, (" the selected trial's terminal, live", palette.faint))]
        above, below = self._captions(frame, trial, width, height)
        body = self._body(frame, trial, width, height - len(above) - len(below))
        return [*above, *body, *below]

    def _captions(
        self, frame: Frame, trial: TrialView, width: int, height: int
    ) -> tuple[list[Strip], list[Strip]]:
        """What the task asks, and the trial's story, where no other line says it."""
        if not self.names_trial or height < _CAPTIONED:
            return [], []
        ground = frame.palette.on_surface
        task, story = asks_row(frame, trial, width), story_row(frame, trial, width)
        return [task.apply_style(ground)], [story.apply_style(ground)]

    def _body(self, frame: Frame, trial: TrialView, width: int, height: int) -> list[Strip]:
        palette, screen = frame.palette, self._screen
        if screen is None:
            words = (
                doing(trial) if not trial.live else "its terminal opens once the sandbox is ready"
            )
            lines = [f" {line}" for line in wrap(trial.reason or words, width - 2)]
            rows = [row(width, (line, palette.muted)) for line in lines[:height]]
            return rows + [row(width)] * (height - len(rows))
        rows = []
        body = height
        if screen.failure:
            body -= 1
        cursor = screen.cursor if trial.live or self.at is not None else None
        # A line longer than the pane: keep the cursor in sight.
        left = max(0, cursor[0] - width + 2) if cursor else 0
        for y in screen.window(body):
            strip = screen.row(y, palette)
            if cursor and cursor[1] == y and cursor[0] < screen.columns:
                strip = _with_cursor(strip, cursor[0])
            rows.append(cropped(strip, left, width, palette.terminal))
        blank = row(width, base=palette.terminal)
        rows.extend([blank] * (body - len(rows)))
        if screen.failure:
            rows.append(row(width, (f" {screen.failure}", palette.infrastructure)))
        return rows


def _with_cursor(strip: Strip, x: int) -> Strip:
    cell = strip.crop(x, x + 1)
    marked = Strip([Segment(part.text, (part.style or Style.null()) + _CURSOR) for part in cell], 1)
    return Strip.join([strip.crop(0, x), marked, strip.crop(x + 1)])
