"""One task in full: instruction, environment, tests, solution, history, a tab each."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tbtui.terminal import visible
from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import rate, visible_lines, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.library import Preview, TaskEntry, TaskRecord
from tbtui.ui.task_choice import about, size_text
from tbtui.ui.textual_seam import Painted, cropped
from tbtui.ui.theme.palette import Palette

TABS = ("instruction", "Dockerfile", "tests", "solution", "history")


class TaskPreview(ScrollView, Painted, can_focus=True):
    """The row of tabs stays on top of what is scrolled."""

    BINDINGS = bindings("library-preview", "panes")

    def __init__(self, id: str, palette: Palette) -> None:
        super().__init__(id=id, classes="pane")
        self._palette = palette
        self._rows: list[Strip] = []
        self._width = 0
        self.tab = 0
        self._entry: TaskEntry | None = None
        self._record = TaskRecord()
        self._preview: Preview | None = None
        self._note = ""
        self._obstacle = ""

    def use(self, palette: Palette) -> None:
        self._palette = palette
        self._draw()

    def show(
        self, entry: TaskEntry, record: TaskRecord, preview: Preview | None, obstacle: str = ""
    ) -> None:
        """A task; without `preview` its files are still being read.

        `obstacle`: why it can't be used here.
        """
        if self._entry is None or entry.id != self._entry.id:
            self.scroll_to(y=0, animate=False)
        self._entry, self._record, self._preview, self._note = entry, record, preview, ""
        self._obstacle = obstacle
        self._draw()

    def show_note(self, note: str) -> None:
        """No task, but why."""
        self._entry, self._note = None, note
        self._draw()

    def choose_tab(self, tab: int) -> None:
        self.tab = tab % len(TABS)
        self.scroll_to(y=0, animate=False)
        self._draw()

    def action_scroll(self, rows: int) -> None:
        self.scroll_relative(y=rows, animate=False)

    def action_newest(self) -> None:
        """To the end."""
        self.scroll_to(y=self.max_scroll_y, animate=False)

    def action_oldest(self) -> None:
        """To the beginning."""
        self.scroll_to(y=0, animate=False)

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if place is None or place.y:
            return
        for index, (start, end) in enumerate(_places()):
            if start <= place.x < end:
                self.choose_tab(index)

    def _draw(self) -> None:
        self._width = width = self.scrollable_content_region.width
        if not width:
            return
        self._rows = [row(width, *spans) for spans in self._lines(width - 2)]
        # One more, for the tabs above.
        self.virtual_size = Size(width, len(self._rows) + 1)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        palette = self._palette
        if y == 0:
            return row(self.size.width, *self._tabs(), base=palette.on_surface)
        index = y - 1 + round(self.scroll_y)
        if index >= len(self._rows):
            return Strip.blank(self.size.width, palette.ground)
        return cropped(self._rows[index], 0, self.size.width).apply_style(palette.ground)

    def _tabs(self) -> Iterator[Span]:
        for index, name in enumerate(TABS):
            style = self._palette.strong if index == self.tab else self._palette.muted
            yield (f" {index + 1} ", self._palette.accent)
            yield (f"{name} ", style + self._palette.on_raised if index == self.tab else style)

    def _lines(self, width: int) -> Iterator[list[Span]]:
        palette, entry = self._palette, self._entry
        if entry is None:
            for text in wrap(self._note, width):
                yield [(f" {text}", palette.faint)]
            return
        if TABS[self.tab] == "history":
            yield from _history(self._record, width, palette)
            return
        yield from self._head(entry, width)
        if self._preview is None:
            yield [(" reading its files", palette.faint)]
            return
        parts = self._preview
        text = (parts.instruction, parts.environment, parts.tests, parts.solution)[self.tab]
        if not text:
            yield [(" the task has none", palette.faint)]
        for line in visible_lines(text):
            style = palette.accent if line.startswith("── ") else palette.text
            for part in wrap(line, width) if line else ("",):
                yield [(f" {part}", style)]

    def _head(self, entry: TaskEntry, width: int) -> Iterator[list[Span]]:
        palette = self._palette
        use = {"train": "trained on", "heldout": "held out", "unused": "held out, not evaluated"}
        facts = [entry.name, entry.kind, entry.difficulty, use[entry.use]]
        facts += [f"{about(entry.timeout_sec)} for the agent", size_text(entry.size)]
        for line in wrap(" · ".join(filter(None, facts)), width):
            yield [(f" {line}", palette.muted)]
        if self._obstacle:
            for line in wrap(f"can't be used here: {visible(self._obstacle)}", width):
                yield [(f" {line}", palette.infrastructure)]
        yield []

    @property
    def text(self) -> str:
        """All rows below the tabs as plain text."""
        return "\n".join(strip.text.rstrip() for strip in self._rows)


def _places() -> Iterator[tuple[int, int]]:
    x = 0
    for name in TABS:
        yield x, x + len(name) + 4
        x += len(name) + 4


def _history(record: TaskRecord, width: int, palette: Palette) -> Iterator[list[Span]]:
    if not record.runs:
        yield [(" no recorded run has tried it", palette.faint)]
        return
    seconds = about(record.seconds) if record.seconds is not None else "–"
    yield [
        (f" {record.rollouts} rollouts in {len(record.runs)} runs", palette.strong),
        (f" · pass rate {rate(record.pass_rate).strip()} · {seconds} each", palette.muted),
    ]
    yield []
    yield [(f" {'pass':>4} {'solved':>8} {'each':>6}  run", palette.muted)]
    for run in record.runs:
        passed = run.reward_sum / run.scored if run.scored else None
        each = about(run.seconds) if run.seconds is not None else "–"
        day = datetime.datetime.fromtimestamp(run.started_at).strftime("%Y-%m-%d")
        solved = f"{run.solved}/{run.scored}"
        yield [
            (f" {rate(passed):>4}", palette.text),
            (f" {solved:>8} {each:>6}  ", palette.muted),
            (run.run, palette.text),
            (f"  {day}", palette.faint),
        ]
