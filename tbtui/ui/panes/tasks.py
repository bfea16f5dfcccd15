"""The tree of tasks: dataset, kinds, tasks; each with its pass rate, trend, flakes and pace."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.base_app import app_of
from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import HELD_OUT_MARK
from tbtui.ui.keys import bindings
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import number, rate, sparkline
from tbtui.view.state import TaskView
from tbtui.view.tasks import DatasetView, KindView, seconds_per_rollout, task_tree


@dataclass(frozen=True, slots=True)
class _Row:
    """One visible line of the tree."""

    name: str
    node: DatasetView | KindView | TaskView


_WIDE = 56
"""Columns from which on every row has all numbers, below headings."""
_WIDEST = 84
_FLAKY = 0.02
"""Share of trials lost to infrastructure from which on a narrow row says so."""


class TaskPane(Pane):
    """The cursor moves over the rows; kinds open and close. A chosen row filters the grid."""

    BINDINGS = bindings("tasks")

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._unfolded: set[str] = set()
        self._cursor = 0
        self._tree: list[_Row] = []
        self._heading = 0
        """Rows above the tree."""

    def on_mount(self) -> None:
        self._unfolded = set(app_of(self).user.preferences.unfolded)

    class Chosen(Message):
        """Only the trials of this kind or task are wanted; of neither: all."""

        def __init__(self, kind: str = "", task: str = "") -> None:
            super().__init__()
            self.kind, self.task = kind, task

    def title(self, frame: Frame) -> str:
        return f"tasks · {HELD_OUT_MARK} held out" if frame.state.tasks else "tasks"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        live = tuple(task.live for task in state.tasks.values())
        return (
            state.trials_finished,
            live,
            self._cursor,
            frozenset(self._unfolded),
            self.has_focus,
            frame.listing.filter,
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not frame.state.tasks:
            return [row(width, (" when the tasks are read", palette.faint))]
        tree = task_tree(frame.state)
        # Numbers far from their names are hard to follow.
        width = min(width, _WIDEST)
        self._tree = [_Row(tree.name, tree)]
        for kind in tree.kinds:
            self._tree.append(_Row(kind.name, kind))
            if kind.name in self._unfolded:
                self._tree.extend(_Row(task.name, task) for task in kind.tasks)
        self._cursor = min(self._cursor, len(self._tree) - 1)
        self._heading = int(width >= _WIDE)
        rows = [
            self._line(each, frame, width, self.has_focus and index == self._cursor)
            for index, each in enumerate(self._tree)
        ]
        if self._heading:
            words = "live   held  pass  trend      lost  s/rollout "
            return [split_row(width, [], [(words, palette.faint)]), *rows]
        return rows

    def _line(self, each: _Row, frame: Frame, width: int, selected: bool) -> Strip:
        palette, node = frame.palette, each.node
        live = 0
        value: float | None
        held_out: float | None = None
        match node:
            case DatasetView():
                trend = [
                    step.mean_reward for step in frame.state.steps if step.mean_reward is not None
                ]
                value = sum(frame.state.rewards) / max(1, len(frame.state.rewards))
                value = value if frame.state.rewards else None
                held_out = frame.state.evals[-1].pass_rate if frame.state.evals else None
                flakes, seconds = node.flake_rate, None
                lead, style = f" {node.name}", palette.strong
            case KindView():
                value, trend, live = node.recent_rate, node.trend, node.live
                held_out = node.held_out_rate
                flakes, seconds = node.flake_rate, node.seconds
                lead = f" {'▾' if node.name in self._unfolded else '▸'} {node.name}"
                style = palette.text
            case TaskView():
                value, trend, live = node.recent_rate, list(node.recent), node.live
                marked = node.split == "eval"
                flakes, seconds = node.flake_rate, seconds_per_rollout(frame.state, node.name)
                lead = f"   {HELD_OUT_MARK if marked else ' '} {node.name}"
                style = palette.held_out if marked else palette.text
        mark = "▌" if _is_chosen(node, frame) else " "
        left: list[Span] = [(mark, palette.accent), (lead[1:], None if selected else style)]
        known = palette.muted if value is None else palette.text
        if width >= _WIDE:
            right: list[Span] = [
                (f"{live or '':>4} ", palette.accent),
                (f"{rate(held_out) if held_out is not None else '':>6} ", palette.held_out),
                (f"{rate(value):>5} ", known),
                (f" {sparkline(trend[-48:], 8)} ", palette.muted),
                (f"{_percent(flakes):>6} ", palette.infrastructure if flakes else palette.faint),
                (f"{'–' if seconds is None else number(seconds):>9}  ", palette.text),
            ]
        else:
            right = [
                (f"{live or '':>3} ", palette.accent),
                (f"{rate(value)} ", known),
                (sparkline(trend[-48:], 5) + " ", palette.muted),
            ]
            if width >= 30 and flakes is not None and flakes >= _FLAKY:
                right.insert(0, (f" !{flakes:.0%}", palette.infrastructure))
            elif width >= 30 and held_out is not None:
                # What was learned, beside what was trained.
                right.insert(0, (f" {HELD_OUT_MARK}{rate(held_out)}", palette.held_out))
        if selected:
            right = [(text, None) for text, _ in right]
        return split_row(width, left, right, palette.selected if selected else None)

    def action_move(self, rows: int) -> None:
        self._cursor = min(max(0, self._cursor + rows), max(0, len(self._tree) - 1))
        self.reveal(self._cursor + self._heading)
        self.redraw()

    def action_choose(self) -> None:
        """Show only this row's trials in the grid; those of the whole dataset are all."""
        if not self._tree:
            return
        match self._tree[self._cursor].node:
            case DatasetView():
                self.post_message(self.Chosen())
            case KindView() as kind:
                self.post_message(self.Chosen(kind=kind.name))
            case TaskView() as task:
                self.post_message(self.Chosen(task=task.name))

    def action_unfold(self) -> None:
        if not self._tree:
            return
        node = self._tree[self._cursor].node
        if isinstance(node, KindView):
            self._unfolded ^= {node.name}
        elif isinstance(node, DatasetView):
            names = {kind.name for kind in node.kinds}
            self._unfolded = set() if self._unfolded >= names else names
        app_of(self).remember(unfolded=sorted(self._unfolded))
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        index = event.y - self.gutter.top + round(self.scroll_y) - self._heading
        if 0 <= index < len(self._tree):
            self._cursor = index
            if event.chain > 1 or isinstance(self._tree[index].node, TaskView):
                self.action_choose()
            else:
                self.action_unfold()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()


def _is_chosen(node: DatasetView | KindView | TaskView, frame: Frame) -> bool:
    """The grid shows the trials of this row alone."""
    wanted = frame.listing.filter
    match node:
        case KindView():
            return wanted.kind == node.name
        case TaskView():
            return wanted.task == node.name
        case DatasetView():
            return False


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"
