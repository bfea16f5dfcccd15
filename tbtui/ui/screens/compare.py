"""The comparison of two runs: curves, tasks, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import ClassVar

from rich.style import Style
from textual import work
from textual.app import ComposeResult
from textual.strip import Strip

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.drawing.charts import Series, axes
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, clip, rate
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame, Pane, Redraw
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Columns, Rows
from tbtui.ui.theme.palette import Palette
from tbtui.view.comparison import Comparison, Side, TaskDifference

_NARROW = 60


class ComparedPane(Pane):
    """A pane of a comparison, once there is one."""

    EVERY = 5

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.comparison: Comparison | None = None
        self.trouble = ""
        """Why there is none."""

    def key(self, frame: Frame) -> Hashable:
        return id(self.comparison), self.trouble

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        if self.comparison is None:
            text, style = " reading both runs", frame.palette.faint
            if self.trouble:
                text, style = f" {self.trouble}", frame.palette.bad
            return [row(width, (text, style))]
        return self.compared(self.comparison, frame.palette, width, height)

    def compared(
        self, comparison: Comparison, palette: Palette, width: int, height: int
    ) -> list[Strip]:
        raise NotImplementedError


def first_style(palette: Palette) -> Style:
    return palette.attention


def second_style(palette: Palette) -> Style:
    return palette.accent


class ComparedCurves(ComparedPane):
    """Held-out and training pass rates of both over each other."""

    def title(self, frame: Frame) -> str:
        return "pass rates by step · • held out, line: training"

    def compared(
        self, comparison: Comparison, palette: Palette, width: int, height: int
    ) -> list[Strip]:
        first, second = comparison.first, comparison.second
        rows = [
            _side(first, "A", first_style(palette), palette, width),
            _side(second, "B", second_style(palette), palette, width),
        ]
        series = [
            Series(first.training, first_style(palette)),
            Series(second.training, second_style(palette)),
            Series(first.held_out, first_style(palette), marks=True),
            Series(second.held_out, second_style(palette), marks=True),
        ]
        if any(line.points for line in series):
            chart = axes(
                series,
                width - 1,
                max(4, height - len(rows)),
                comparison.last_step,
                (0.0, 1.0),
                palette.muted,
            )
            rows += [row(width, *spans) for spans in chart]
        else:
            rows.append(
                row(width, (" neither run has finished a step or an evaluation", palette.faint))
            )
        return rows


def _side(side: Side, letter: str, style: Style, palette: Palette, width: int) -> Strip:
    last = side.held_out[-1][1] if side.held_out else None
    right: list[Span] = [
        (f"{_count(side.steps, 'step')}  {_count(side.rollouts, 'rollout')}  ", palette.muted),
        ("held out ", palette.muted),
        (rate(last).strip(), palette.strong),
    ]
    if side.best is not None and side.best != last:
        right.append((f"  best {rate(side.best).strip()}", palette.muted))
    left: list[Span] = [(f" {letter} ━ ", style), (Name(side.name), palette.strong)]
    return split_row(width, left, [*right, (" ", None)])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class ComparedTasks(ComparedPane):
    """Mean reward of each task in both, the largest changes first."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._header = 1

    def title(self, frame: Frame) -> str:
        return "tasks, largest change first" if self.comparison else "tasks"

    def compared(
        self, comparison: Comparison, palette: Palette, width: int, height: int
    ) -> list[Strip]:
        head = (
            f"{'A':>12}{'B':>12}{'change':>9} " if width >= _NARROW else f"{'A':>5}{'B':>5}  B-A "
        )
        rows = [split_row(width, [(" task", palette.faint)], [(head, palette.faint)])]
        rows += [_task(each, palette, width) for each in comparison.tasks]
        return rows


def _task(each: TaskDifference, palette: Palette, width: int) -> Strip:
    change = each.change
    if change is None:
        style, words = palette.faint, "–"
    else:
        style = palette.muted if change == 0 else palette.good if change > 0 else palette.bad
        words = f"{change:+.2f}".replace("0.", ".", 1) if change else "="
    cells: list[Span] = []
    for value, trials in ((each.first, each.first_trials), (each.second, each.second_trials)):
        if width >= _NARROW:
            cells += [(f"{rate(value):>7}", palette.text), (f" /{trials:<3}", palette.faint)]
        else:
            cells.append((f"{rate(value):>5}", palette.text))
    cells.append((f"{words:>8} " if width >= _NARROW else f"{words:>5} ", style))
    name: list[Span] = [(" ", None), (Name(each.name), palette.text)]
    if each.split == "eval":
        name.append((" ◇", palette.held_out))
    return split_row(width, name, cells)


class ComparedSettings(ComparedPane):
    """The settings in which they differ."""

    def title(self, frame: Frame) -> str:
        if self.comparison is None:
            return "settings"
        return f"settings that differ {len(self.comparison.settings)}"

    def compared(
        self, comparison: Comparison, palette: Palette, width: int, height: int
    ) -> list[Strip]:
        if not comparison.settings:
            return [row(width, (" no setting differs", palette.faint))]
        name_width = min(width // 3, max(len(each.name) for each in comparison.settings) + 2)
        room = max(6, (width - name_width - 4) // 2)
        return [
            row(
                width,
                (f" {clip(each.name, name_width - 1):<{name_width}}", palette.text),
                (f"{clip(shown(each.first), room):<{room}} ", first_style(palette)),
                (clip(shown(each.second), room), second_style(palette)),
            )
            for each in comparison.settings
        ]


def shown(value: object) -> str:
    """A setting's value for a person."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


class CompareScreen(LiveScreen):
    """Two runs side by side: `second` compared with `first`."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("compare", "everywhere")
    BINDINGS = bindings("compare")
    AUTO_FOCUS = "#compared-tasks"
    OVERVIEW = ("compared-curves", "compared-tasks")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("compared-curves",),
        2: ("compared-tasks",),
        3: ("compared-settings",),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "compared-left": ("compared-curves", "compared-settings"),
        "compared-right": ("compared-tasks",),
    }

    def __init__(self, first: RunDirectory, second: RunDirectory) -> None:
        super().__init__()
        self._runs = first, second

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Columns(id="compared"):
            with Rows(id="compared-left"):
                yield ComparedCurves("compared-curves")
                yield ComparedSettings("compared-settings")
            with Rows(id="compared-right"):
                yield ComparedTasks("compared-tasks")
        yield KeyBar("keys", *self.SCOPES)

    def on_mount(self) -> None:
        super().on_mount()
        self._read()

    @work(name="compare", exclusive=True)
    async def _read(self) -> None:
        from tbtui.journal.database import JournalError
        from tbtui.view.reading import compare_runs

        try:
            comparison = await asyncio.to_thread(compare_runs, *self._runs)
        except JournalError as error:
            for pane in self.query(ComparedPane):
                pane.trouble = str(error)
        else:
            for pane in self.query(ComparedPane):
                pane.comparison = comparison
            for trouble in comparison.troubles:
                self.app.notify(trouble, severity="warning", markup=False)
        self.post_message(Redraw())

    def action_back(self) -> None:
        if self.full:
            self.action_full(0)
        else:
            self.dismiss()
