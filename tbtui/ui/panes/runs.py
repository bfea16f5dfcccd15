"""The list of runs: a line for each, those that are shown or marked with a sign."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.context import run_app_of
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip, clip_name, rate
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.palette import Palette
from tbtui.view.runs import RunSummary
from tbtui.view.waiting import duration

_ROOMY = 118


@dataclass(frozen=True, slots=True)
class RunOrder:
    name: str
    key: Callable[[RunSummary], Any]


ORDERS = (
    RunOrder("newest first", lambda each: -(each.started_at or 0.0)),
    RunOrder("by name", lambda each: each.directory.name),
    RunOrder("best first", lambda each: -(each.last_pass_rate or 0.0)),
    RunOrder("most steps", lambda each: -each.step),
    RunOrder("by state", lambda each: each.standing),
)

_GLYPHS = {
    "live": "▶",
    "finished": "✓",
    "failed": "✗",
    "interrupted": "–",
    "killed": "!",
    "unreadable": "!",
}


_SHOWN_MARK, _MARKED_MARK, _CHARTED_MARK = "▸", "◆", "+"


class RunsPane(Pane):
    """A line for each run; the choice stays with its run."""

    BINDINGS = bindings("runs-list")
    EVERY = 2

    class Opened(Message):
        """A run is to be opened."""

        def __init__(self, summary: RunSummary) -> None:
            super().__init__()
            self.summary = summary

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.words = ""
        """The filter's words."""
        self.order = ORDERS[0]
        self.reading = True
        self.marked: RunSummary | None = None
        """The run that is marked for a comparison."""
        self._all: tuple[RunSummary, ...] = ()
        self._chosen = ""
        """The path of the chosen run."""
        self._place = 0
        """The row where it was shown last."""

    def take(self, summaries: Sequence[RunSummary]) -> None:
        """Show these runs."""
        self._all = tuple(summaries)
        self.reading = False
        if not self._chosen and self._all:
            # From now on that one is chosen, whatever comes above it.
            self._chosen = str(self.listed[0].directory.path) if self.listed else ""

    @property
    def listed(self) -> list[RunSummary]:
        words = self.words.lower().split()
        return sorted(
            (each for each in self._all if all(word in _words(each) for word in words)),
            key=self.order.key,
        )

    @property
    def chosen(self) -> RunSummary | None:
        listed = self.listed
        return listed[self._index(listed)] if listed else None

    def title(self, frame: Frame) -> str:
        if self.marked is not None:
            name = clip_name(self.marked.directory.name, 30)
            return f"{frame.keys.name_of('runs-compare')} compares the chosen run with {name}"
        shown = len(self.listed)
        count = f"{shown} of {len(self._all)}" if self.words else f"{len(self._all)}"
        of = f" · {self.words!r}" if self.words else ""
        return f"runs {count} · {self.order.name}{of} · {_SHOWN_MARK} shown"

    def key(self, frame: Frame) -> Hashable:
        shown = frame.run.directory.path
        marks = self.marked, tuple(run_app_of(self).marked_runs)
        return self._all, self.words, self.order, self._chosen, self.reading, marks, shown

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, listed = frame.palette, self.listed
        self._header = int(bool(listed))
        if not listed:
            text = " reading the runs" if self.reading else " no run"
            if self.words:
                text += f" with {self.words!r} in its name, model, engine, policy or state"
            return [row(width, (text, palette.faint))]
        here = self._index(listed)
        charted = set(run_app_of(self).marked_runs)
        columns = _columns(self._all, width)
        rows = [_head(columns, palette, width)]
        for index, each in enumerate(listed):
            shown = each.directory.path == frame.run.directory.path
            marked = self.marked is not None and each.directory == self.marked.directory
            base = palette.on_raised if index == here else None
            left, right = _cells(each, columns, palette, shown=shown, marked=marked)
            if each.directory in charted and not marked:
                left[0] = (_CHARTED_MARK, palette.held_out)
            rows.append(split_row(width, left, right, base))
        return rows

    def show(self, frame: Frame) -> None:
        super().show(frame)
        listed = self.listed
        place = self._index(listed) if listed else 0
        if place != self._place:
            # Others came above it, or it was moved; wheels may scroll it out of sight.
            self._place = place
            self.reveal(place + 1)

    def choose(self, run: RunDirectory) -> None:
        """Choose a run, which may only come into the list."""
        self._chosen = str(run.path)

    def action_move(self, rows: int) -> None:
        listed = self.listed
        if listed:
            index = min(len(listed) - 1, max(0, self._index(listed) + rows))
            self._chosen = str(listed[index].directory.path)
            self.redraw()

    def action_newest(self) -> None:
        self.action_move(len(self._all))

    def action_oldest(self) -> None:
        self.action_move(-len(self._all))

    def action_open(self) -> None:
        if (summary := self.chosen) is not None:
            self.post_message(self.Opened(summary))

    def on_click(self, event: events.Click) -> None:
        at, listed = self.place_of(event), self.listed
        if at is not None and 0 < at.y <= len(listed):
            index = at.y - 1
            again = self._index(listed) == index
            self._chosen = str(listed[index].directory.path)
            if again:
                self.action_open()
            self.redraw()

    def _index(self, listed: Sequence[RunSummary]) -> int:
        for index, each in enumerate(listed):
            if str(each.directory.path) == self._chosen:
                return index
        return 0


def _words(each: RunSummary) -> str:
    """The text that a filter matches."""
    name = each.directory.name
    return f"{name} {each.model_name} {each.engine} {each.policy} {each.standing}".lower()


_OWN_NAME = len("2026-11-26-005508")
"""Cells of the name that a run without one gets."""
_FIGURES = (("steps", 9), ("held out", 12), ("trials", 8))
_TOOK, _STATE = 8, 14
_STARTED = {16: "%Y-%m-%d %H:%M", 11: "%m-%d %H:%M", 5: "%m-%d"}
"""Cells -> how a time is written in them."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Cells of the columns whose width depends on what is listed."""

    name: int
    started: int
    engine: int
    """0: there is no room for it, nor for the policy and the time that a run took."""
    policy: int

    @property
    def roomy(self) -> bool:
        return self.engine > 0


def _columns(runs: Sequence[RunSummary], width: int) -> _Columns:
    """Whole names and models where the window is wide enough for both; next, whole times."""

    def longest(head: str, words: Iterable[str]) -> int:
        return max(len(head), *map(cell_len, words))

    names = longest("run", (each.directory.name for each in runs))
    models = longest("model", (each.model_name for each in runs))
    engine = policy = 0
    # Beside the marks, and a cell before the figures.
    room = width - 3 - 1 - sum(cells for _, cells in _FIGURES) - _STATE
    if width >= _ROOMY:
        engine = min(10, longest("engine", (each.engine for each in runs)))
        policy = min(8, longest("policy", (each.policy for each in runs)))
        room -= engine + 1 + policy + 1 + _TOOK
    free = room - names - 1 - models - 1
    started = next((cells for cells in _STARTED if cells <= free), min(_STARTED))
    room -= started + 2
    least = min(names, max(_OWN_NAME, room // 2))
    return _Columns(max(least, min(names, room - models)), started, engine, policy)


def _head(columns: _Columns, palette: Palette, width: int) -> Strip:
    left = f"   {'run':<{columns.name}} {'start':<{columns.started}} "
    if columns.roomy:
        left += f"{'engine':<{columns.engine}} {'policy':<{columns.policy}} "
    right = "".join(f"{name:>{cells}}" for name, cells in _FIGURES)
    right += (f"{'took':>{_TOOK}}" if columns.roomy else "") + f"  {'state':<{_STATE - 2}}"
    return split_row(width, [(f"{left}model", palette.faint)], [(right, palette.faint)])


def _cells(
    each: RunSummary, columns: _Columns, palette: Palette, *, shown: bool, marked: bool
) -> tuple[list[Span], list[Span]]:
    style = {
        "live": palette.accent,
        "finished": palette.good,
        "failed": palette.bad,
        "killed": palette.bad,
    }.get(each.standing, palette.muted)
    started = "–"
    if each.started_at is not None:
        started = time.strftime(_STARTED[columns.started], time.localtime(each.started_at))
    name = clip_name(each.directory.name, columns.name)
    mark = _MARKED_MARK if marked else _SHOWN_MARK if shown else " "
    left: list[Span] = [
        (mark, palette.attention if marked else palette.accent),
        (f"{_GLYPHS[each.standing]} ", style),
        (f"{name:<{columns.name}} ", palette.strong if shown else palette.text),
        (f"{started:<{columns.started}} ", palette.muted),
    ]
    if each.standing == "unreadable":
        # Whose it is stands before it.
        reason = each.reason.removeprefix(f"{each.directory.database}: ")
        return [*left, (reason, palette.bad)], []
    if columns.roomy:
        left += [
            (f"{clip(each.engine, columns.engine):<{columns.engine}} ", palette.muted),
            (f"{clip(each.policy, columns.policy):<{columns.policy}} ", palette.muted),
        ]
    left.append((each.model_name, palette.text))
    if columns.roomy and each.standing == "failed":
        left.append((f"  {each.reason}", palette.bad))
    right: list[Span] = [(f"{each.steps:>9}", palette.text)]
    if each.first_pass_rate is None or each.last_pass_rate is None:
        right.append((f"{'–':>12}", palette.faint))
    else:
        right.append((f"{rate(each.first_pass_rate):>6} → ", palette.muted))
        right.append((f"{rate(each.last_pass_rate)}", palette.strong))
    right.append((f"{each.rollouts:>8}", palette.text))
    if columns.roomy:
        took = "–" if each.seconds is None else duration(each.seconds)
        right.append((f"{took:>{_TOOK}}", palette.muted))
    right.append((f"  {each.standing:<{_STATE - 2}}", style))
    return left, right
