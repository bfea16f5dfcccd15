"""The task browser's panes: the tree with checkboxes, and a task's preview in tabs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tbtui.terminal import visible
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, rate, visible_lines, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.library import PastTask, Preview, TaskEntry
from tbtui.ui.task_choice import TaskChoice, TreeRow, about, size_text
from tbtui.ui.textual_seam import Painted, cropped
from tbtui.ui.theme.glyphs import HELD_OUT_MARK, UNUSABLE_MARK
from tbtui.ui.theme.palette import Palette

ALL, SOME, NONE = "■", "◧", "□"
_WIDE = 56
"""Cells from which on there is room for the size."""


class LibraryTree(ScrollView, Painted, can_focus=True):
    """Shows a `TaskChoice`; the cursor stays on its row when rows come and go."""

    BINDINGS = bindings("library-tree", "panes")

    class Moved(Message):
        """The cursor is on another row."""

    class Chosen(Message):
        """The selection has changed."""

    def __init__(self, id: str, choice: TaskChoice, palette: Palette) -> None:
        super().__init__(id=id, classes="pane")
        self._choice = choice
        self._palette = palette
        self._cursor = 0
        self._key = ""
        """Key of the row under the cursor."""
        self.empty = ""
        """What is said when there is no row."""

    def on_mount(self) -> None:
        self.settle()

    @property
    def current(self) -> TreeRow | None:
        rows = self._choice.rows
        return rows[self._cursor] if rows else None

    def use(self, palette: Palette) -> None:
        self._palette = palette
        self.refresh()

    def settle(self) -> None:
        """Put the cursor back on its row after the rows have changed."""
        rows = self._choice.rows
        places = {each.key: index for index, each in enumerate(rows)}
        self._cursor = places.get(self._key, min(self._cursor, max(0, len(rows) - 1)))
        self._resize()
        self._moved()

    def go_to(self, wanted: TreeRow) -> None:
        """Put the cursor on a row."""
        self._cursor = self._choice.rows.index(wanted)
        self._moved()

    def _moved(self) -> None:
        before, self._key = self._key, self.current.key if self.current else ""
        self._reveal()
        self.refresh()
        if before != self._key:
            self.post_message(self.Moved())

    def _reveal(self) -> None:
        top, height = round(self.scroll_y), max(1, self.scrollable_content_region.height - 1)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False)

    def on_resize(self) -> None:
        self._resize()

    def _resize(self) -> None:
        # One more, for the heads above.
        self.virtual_size = Size(self.size.width, len(self._choice.rows) + 1)

    # Drawing

    def render_line(self, y: int) -> Strip:
        width, palette = self.size.width, self._palette
        if y == 0:
            return self._heads(width)
        index = y - 1 + round(self.scroll_y)
        rows = self._choice.rows
        if not rows and index == 0:
            return row(width, (f" {self.empty}", palette.faint), base=palette.ground)
        if index >= len(rows):
            return Strip.blank(width, palette.ground)
        return self._line(rows[index], width, index == self._cursor)

    def _heads(self, width: int) -> Strip:
        """Return the column captions, which stay on top."""
        heads = f"{'difficulty':>10} pass   each "
        heads += "   size " if width >= _WIDE else ""
        muted = self._palette.muted
        ground = self._palette.on_surface
        marks = f" {ALL} selected  {HELD_OUT_MARK} held out"
        return split_row(width, [(marks, muted)], [(heads, muted)], ground)

    def _line(self, each: TreeRow, width: int, under: bool) -> Strip:
        palette, choice = self._palette, self._choice
        count = sum(id in choice.selected for id in each.ids)
        mark = ALL if count == len(each.ids) else SOME if count else NONE
        ticked = palette.accent if count else palette.faint
        name = palette.text
        fold = "▾" if choice.is_open(each) else "▸"
        match each.level:
            case "dataset":
                lead, name = f" {fold} ", palette.strong
            case "kind":
                lead = f"   {fold} "
            case "task":
                lead = "       "
        held_out = each.level == "task" and choice.entries[each.ids[0]].use != "train"
        unusable = each.level == "task" and each.ids[0] in choice.unusable
        if unusable:
            name = palette.infrastructure
        left: list[Span] = [
            (lead, palette.muted),
            (f"{mark} ", ticked),
            (f"{HELD_OUT_MARK} " if held_out else "", palette.held_out),
            (Name(each.name), palette.held_out if held_out and not unusable else name),
            (f" {UNUSABLE_MARK}" if unusable else "", palette.infrastructure),
        ]
        if each.level != "task":
            counted = palette.accent if count else palette.muted
            left.append((f"  {count}/{len(each.ids)}", counted))
        right = self._facts(each, width)
        base: Style = palette.ground
        if under and self.has_focus:
            base = palette.selected
            left, right = [(text, None) for text, _ in left], [(text, None) for text, _ in right]
        elif under:
            base = palette.on_raised
        return split_row(width, left, right, base)

    def _facts(self, each: TreeRow, width: int) -> list[Span]:
        """Difficulty of a task, pass rate, seconds, size; in columns, the last gone when narrow."""
        palette, choice = self._palette, self._choice
        entries = [choice.entries[id] for id in each.ids]
        records = [choice.record(id) for id in each.ids]
        scored = [record.pass_rate for record in records if record.pass_rate is not None]
        timed = [record.seconds for record in records if record.seconds is not None]
        passed = sum(scored) / len(scored) if scored else None
        seconds = about(sum(timed) / len(timed)) if timed else "–"
        difficulty = entries[0].difficulty if each.level == "task" else ""
        size = size_text(sum(entry.size for entry in entries))
        spans: list[Span] = [
            (f"{difficulty:>10} ", palette.muted),
            (f" {rate(passed)} ", palette.text if passed is not None else palette.faint),
            (f"{seconds:>6} ", palette.muted if timed else palette.faint),
        ]
        return [*spans, (f"{size:>7} ", palette.muted)] if width >= _WIDE else spans

    # What people do

    def action_move(self, rows: int) -> None:
        self._cursor = min(max(0, self._cursor + rows), max(0, len(self._choice.rows) - 1))
        self._moved()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.scrollable_content_region.height - 1))

    def action_newest(self) -> None:
        """Go to the last row."""
        self.action_move(len(self._choice.rows))

    def action_oldest(self) -> None:
        """Go to the first row."""
        self.action_move(-len(self._choice.rows))

    def action_tick(self) -> None:
        if self.current is not None:
            self._choice.toggle(self.current)
            self.refresh()
            self.post_message(self.Chosen())

    def action_unfold(self, unfold: bool) -> None:
        """Unfold a node or go into it; fold it or go to its parent."""
        current = self.current
        if current is None:
            return
        if self._choice.fold(current, unfold):
            self.settle()
        elif unfold:
            self.action_move(1)
        else:
            self._to_parent(current)

    def _to_parent(self, current: TreeRow) -> None:
        levels = {"dataset": 0, "kind": 1, "task": 2}
        for index in range(self._cursor - 1, -1, -1):
            if levels[self._choice.rows[index].level] < levels[current.level]:
                self._cursor = index
                break
        self._moved()

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if place is None or not place.y:
            return
        index = place.y - 1 + round(self.scroll_y)
        if index >= len(self._choice.rows):
            return
        self._cursor = index
        self._moved()
        each = self._choice.rows[index]
        box = {"dataset": 3, "kind": 5, "task": 7}[each.level]
        if box <= place.x < box + 2 or event.chain == 2:
            self.action_tick()
        elif place.x < box and each.level != "task":
            self._choice.fold(each)
            self.settle()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    @property
    def text(self) -> str:
        """All rows as plain text."""
        width = max(40, self.size.width)
        return "\n".join(self._line(each, width, False).text.rstrip() for each in self._choice.rows)


TABS = ("instruction", "Dockerfile", "tests", "solution", "history")


class TaskPreview(ScrollView, Painted, can_focus=True):
    """Previews a task's files and history in tabs."""

    BINDINGS = bindings("library-preview", "panes")

    def __init__(self, id: str, palette: Palette) -> None:
        super().__init__(id=id, classes="pane")
        self._palette = palette
        self._rows: list[Strip] = []
        self.tab = 0
        self._entry: TaskEntry | None = None
        self._record = PastTask()
        self._preview: Preview | None = None
        self._note = ""
        self._unusable = ""

    def use(self, palette: Palette) -> None:
        self._palette = palette
        self._draw()

    def show(
        self, entry: TaskEntry, record: PastTask, preview: Preview | None, unusable: str = ""
    ) -> None:
        """A task; without `preview` its files are still being read.

        `unusable`: why it can't be used here.
        """
        if self._entry is None or entry.id != self._entry.id:
            self.scroll_to(y=0, animate=False)
        self._entry, self._record, self._preview, self._note = entry, record, preview, ""
        self._unusable = unusable
        self._draw()

    def show_note(self, note: str) -> None:
        """Show a reason in place of a task."""
        self._entry, self._note = None, note
        self._draw()

    def choose_tab(self, tab: int) -> None:
        self.tab = tab % len(TABS)
        self.scroll_to(y=0, animate=False)
        self._draw()

    def action_scroll(self, rows: int) -> None:
        self.scroll_relative(y=rows, animate=False)

    def action_newest(self) -> None:
        """Scroll to the end."""
        self.scroll_to(y=self.max_scroll_y, animate=False)

    def action_oldest(self) -> None:
        """Scroll to the beginning."""
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
        width = self.scrollable_content_region.width
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
            yield [(" reading the task's files", palette.faint)]
            return
        parts = self._preview
        text = (parts.instruction, parts.environment, parts.tests, parts.solution)[self.tab]
        if not text:
            yield [(" the task has no such file", palette.faint)]
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
        if self._unusable:
            for line in wrap(f"can't be used here: {visible(self._unusable)}", width):
                yield [(f" {line}", palette.infrastructure)]
        if self._preview is not None and (names := self._preview.variables):
            for line in wrap(f"takes variables of this machine: {names}", width):
                yield [(f" {line}", palette.muted)]
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


def _history(record: PastTask, width: int, palette: Palette) -> Iterator[list[Span]]:
    if not record.runs:
        yield [(" no recorded run has tried this task", palette.faint)]
        return
    seconds = about(record.seconds) if record.seconds is not None else "–"
    runs = f"{len(record.runs)} run{'s' * (len(record.runs) != 1)}"
    yield [
        (f" {record.rollouts} rollouts in {runs}", palette.strong),
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
