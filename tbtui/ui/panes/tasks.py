"""The tree of tasks: dataset, kinds, tasks; each with its pass rate and trend."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from textual import events
from textual.strip import Strip

from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import HELD_OUT_MARK
from tbtui.ui.keys import bindings
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import rate, sparkline
from tbtui.view.state import TaskView
from tbtui.view.tasks import DatasetView, KindView, task_tree


@dataclass(frozen=True, slots=True)
class _Row:
    """One visible line of the tree."""

    name: str
    node: DatasetView | KindView | TaskView


class TaskPane(Pane):
    """The cursor moves over the rows; kinds open and close."""

    BINDINGS = bindings("tasks")

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._unfolded: set[str] = set()
        self._cursor = 0
        self._tree: list[_Row] = []

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
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not frame.state.tasks:
            return [row(width, (" when the tasks are read", palette.faint))]
        tree = task_tree(frame.state)
        self._tree = [_Row(tree.name, tree)]
        for kind in tree.kinds:
            self._tree.append(_Row(kind.name, kind))
            if kind.name in self._unfolded:
                self._tree.extend(_Row(task.name, task) for task in kind.tasks)
        self._cursor = min(self._cursor, len(self._tree) - 1)
        return [
            self._line(each, frame, width, self.has_focus and index == self._cursor)
            for index, each in enumerate(self._tree)
        ]

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
                lead, style = f" {node.name}", palette.strong
            case KindView():
                value, trend, live = node.recent_rate, node.trend, node.live
                held_out = node.held_out_rate
                lead = f" {'▾' if node.name in self._unfolded else '▸'} {node.name}"
                style = palette.text
            case TaskView():
                value, trend, live = node.recent_rate, list(node.recent), node.live
                marked = node.split == "eval"
                lead = f"   {HELD_OUT_MARK if marked else ' '} {node.name}"
                style = palette.held_out if marked else palette.text
        right: list[Span] = [
            (f"{live or '':>3} ", palette.accent),
            (f"{rate(value)} ", palette.muted if value is None else palette.text),
            (sparkline(trend[-48:], 5) + " ", palette.muted),
        ]
        if width >= 30 and held_out is not None:
            # What was learned, beside what was trained; a task's row needs the room for its name.
            text = f" {HELD_OUT_MARK}{rate(held_out)}"
            right.insert(0, (text, palette.held_out))
        left: list[Span] = [(lead, None if selected else style)]
        if selected:
            right = [(text, None) for text, _ in right]
        return split_row(width, left, right, palette.selected if selected else None)

    def action_move(self, rows: int) -> None:
        self._cursor = min(max(0, self._cursor + rows), max(0, len(self._tree) - 1))
        self.reveal(self._cursor)
        self.redraw()

    def action_unfold(self) -> None:
        if not self._tree:
            return
        node = self._tree[self._cursor].node
        if isinstance(node, KindView):
            self._unfolded ^= {node.name}
        elif isinstance(node, DatasetView):
            names = {kind.name for kind in node.kinds}
            self._unfolded = set() if self._unfolded >= names else names
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        index = event.y - self.gutter.top + round(self.scroll_y)
        if 0 <= index < len(self._tree):
            self._cursor = index
            self.action_unfold()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()
