"""The list of runs: a line for each, those that are shown or marked with a sign."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.journal.rundir import RunDirectory
from tbtui.journal.summaries import RunSummary
from tbtui.ui.context import run_app_of
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip, clip_name, rate
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.palette import Palette
from tbtui.view.waiting import duration

_ROOMY = 118


@dataclass(frozen=True, slots=True)
class Order:
    name: str
    key: Callable[[RunSummary], Any]


ORDERS = (
    Order("newest first", lambda each: -(each.started_at or 0.0)),
    Order("by name", lambda each: each.directory.name),
    Order("best first", lambda each: -(each.last_pass_rate or 0.0)),
    Order("most steps", lambda each: -each.step),
    Order("by state", lambda each: each.standing),
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
        if not listed:
            text = " reading the runs" if self.reading else " no run"
            if self.words:
                text += f" with {self.words!r} in its name, model, engine, policy or state"
            return [row(width, (text, palette.faint))]
        here = self._index(listed)
        charted = set(run_app_of(self).marked_runs)
        rows = [_head(palette, width)]
        for index, each in enumerate(listed):
            shown = each.directory.path == frame.run.directory.path
            marked = self.marked is not None and each.directory == self.marked.directory
            base = palette.on_raised if index == here else None
            left, right = _cells(each, palette, width, shown=shown, marked=marked)
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
_COLUMNS = (("steps", 9), ("held out", 12), ("trials", 8))


def _head(palette: Palette, width: int) -> Strip:
    roomy = width >= _ROOMY
    left = f"   {'run':<{_name_width(width)}} {'started':<{_when_width(width)}} "
    left += f"{'engine':<10} {'policy':<8} model" if roomy else "model"
    right = "".join(f"{name:>{cells}}" for name, cells in _COLUMNS)
    right += (f"{'took':>8}" if roomy else "") + f"  {'state':<11} "
    return split_row(width, [(left, palette.faint)], [(right, palette.faint)])


def _name_width(width: int) -> int:
    return 30 if width >= _ROOMY else min(30, max(_OWN_NAME, width - 63))


def _when_width(width: int) -> int:
    return 16 if width >= _ROOMY else 5


def _cells(
    each: RunSummary, palette: Palette, width: int, *, shown: bool, marked: bool
) -> tuple[list[Span], list[Span]]:
    roomy = width >= _ROOMY
    style = {
        "live": palette.accent,
        "finished": palette.good,
        "failed": palette.bad,
        "killed": palette.bad,
    }.get(each.standing, palette.muted)
    started = "–"
    if each.started_at is not None:
        pattern = "%Y-%m-%d %H:%M" if roomy else "%m-%d"
        started = time.strftime(pattern, time.localtime(each.started_at))
    name = clip_name(each.directory.name, _name_width(width))
    mark = _MARKED_MARK if marked else _SHOWN_MARK if shown else " "
    left: list[Span] = [
        (mark, palette.attention if marked else palette.accent),
        (f"{_GLYPHS[each.standing]} ", style),
        (f"{name:<{_name_width(width)}} ", palette.strong if shown else palette.text),
        (f"{started:<{_when_width(width)}} ", palette.muted),
    ]
    if each.standing == "unreadable":
        # Whose it is stands before it.
        reason = each.reason.removeprefix(f"{each.directory.database}: ")
        return [*left, (reason, palette.bad)], []
    if roomy:
        left += [
            (f"{clip(each.engine, 10):<10} ", palette.muted),
            (f"{clip(each.policy, 8):<8} ", palette.muted),
        ]
    left.append((each.model_name, palette.text))
    if roomy and each.standing == "failed":
        left.append((f"  {each.reason}", palette.bad))
    steps = f"{each.step}" if each.max_steps is None else f"{each.step}/{each.max_steps}"
    right: list[Span] = [(f"{steps:>9}", palette.text)]
    if each.first_pass_rate is None or each.last_pass_rate is None:
        right.append((f"{'–':>12}", palette.faint))
    else:
        right.append((f"{rate(each.first_pass_rate):>6} → ", palette.muted))
        right.append((f"{rate(each.last_pass_rate)}", palette.strong))
    right.append((f"{each.rollouts:>8}", palette.text))
    if roomy:
        took = "–" if each.seconds is None else duration(each.seconds)
        right.append((f"{took:>8}", palette.muted))
    right.append((f"  {each.standing:<11} ", style))
    return left, right
