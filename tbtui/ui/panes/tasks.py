"""The tree of tasks: data sets, kinds, tasks; each with its pass rate, trend, flakes and pace."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.context import app_of
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, number, rate, sparkline
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.glyphs import HELD_OUT_MARK, UNUSABLE_MARK
from tbtui.view.curriculum import muted, no_signal, shares, weighted, wish
from tbtui.view.state import RunState, TaskView
from tbtui.view.tasks import (
    TREE_ORDER_WORDS,
    TREE_ORDERS,
    DatasetView,
    KindView,
    TreeOrder,
    seconds_per_rollout,
    task_tree,
)


@dataclass(frozen=True, slots=True)
class _Row:
    """One visible line of the tree."""

    name: str
    node: DatasetView | KindView | TaskView

    @property
    def id(self) -> str:
        """A task may have its kind's name, and so may kinds of two data sets."""
        return f"{type(self.node).__name__} {self.node.dataset}/{self.name}"


_WIDE = 56
"""Columns from which on every row has all numbers, below headings."""
_WIDEST = 84
_ALL_WIDE = 112
"""Columns from which on weights have columns beside all the others."""
_WEIGHTS = f"{'wanted':>7} {'share':>6} {'p (95%)':>14} {'no signal':>9} "
_ROOMY = 30
"""Columns from which on a row has more than its pass rate and its trend."""
_FLAKY = 0.02
"""Share of trials lost to infrastructure from which on a narrow row says so."""
_LAST = 6
"""Cells of a narrow row's last column."""


class TaskPane(Pane):
    """The tree of tasks; kinds fold and unfold. A chosen row filters the grid."""

    BINDINGS = bindings("tasks")

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._unfolded: set[str] = set()
        """Kinds whose tasks are shown; where there are several data sets, with theirs."""
        self._folded: set[str] = set()
        """Data sets, of several, whose kinds are not shown."""
        self._order: TreeOrder = "name"
        self._cursor = 0
        self._under = ""
        """Id of the row under the cursor."""
        self._tree: list[_Row] = []
        self._trends = True
        """There is room for them beside the names, where there are few numbers."""
        self._roomy = True
        """There is room for what was held out and what was lost."""
        self._shares: dict[str, float] = {}
        """Task -> its chance to be drawn; empty where tasks are taken in the seed's order."""
        self._flaky = False
        """Infrastructure has ended trials of some row."""

    def on_mount(self) -> None:
        preferences = app_of(self).user.preferences
        self._unfolded, self._folded = set(preferences.unfolded), set(preferences.folded)
        self._order = preferences.tree_order

    class Chosen(Message):
        """The grid is to show the trials of this data set, kind or task; None: all."""

        def __init__(self, kind: str = "", task: str = "", dataset: str = "") -> None:
            super().__init__()
            self.kind, self.task, self.dataset = kind, task, dataset

    class Weighted(Message):
        """Somebody wants a task, or all of a kind, to be drawn more or less often."""

        def __init__(self, target: str, arguments: Mapping[str, Any]) -> None:
            """`arguments`: of the command; empty: the weight is to be asked for."""
            super().__init__()
            self.target, self.arguments = target, arguments

    def title(self, frame: Frame) -> str:
        if not frame.state.tasks:
            return "tasks"
        if self.has_focus and (chosen := self._chosen_task()) is not None:
            return _in_words(chosen, frame)
        order = "" if self._order == "name" else f" · {TREE_ORDER_WORDS[self._order]}"
        return f"tasks · {HELD_OUT_MARK} held out{order}"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        live = tuple(task.live for task in state.tasks.values())
        return (
            *(state.trials_finished, len(state.evals)),
            live,
            self._cursor,
            frozenset(self._unfolded),
            frozenset(self._folded),
            self._order,
            self.has_focus,
            frame.listing.filter,
            (state.unseen, state.step),
            tuple(wish(task) for task in state.tasks.values()),
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not frame.state.tasks:
            return [row(width, (" once the tasks are read", palette.faint))]
        # Numbers far from their names are hard to follow.
        self._shares = shares(frame.state) if weighted(frame.state) else {}
        width = min(width, _ALL_WIDE if self._shares else _WIDEST)
        self._tree = []
        for dataset in task_tree(frame.state, self._order):
            self._tree.append(_Row(dataset.name, dataset))
            for kind in () if dataset.name in self._folded and dataset.dataset else dataset.kinds:
                self._tree.append(_Row(kind.name, kind))
                if _fold_name(kind) in self._unfolded:
                    # Its data set stands above it.
                    self._tree.extend(
                        _Row(task.name.removeprefix(f"{task.dataset}/"), task)
                        for task in kind.tasks
                    )
        ids = [each.id for each in self._tree]
        if self._under in ids:
            # Others may have come above it.
            self._cursor = ids.index(self._under)
        self._cursor = min(self._cursor, len(self._tree) - 1)
        self._header = int(width >= _WIDE)
        # Names go before trends. The other numbers stand in columns: all rows have them, or none.
        self._roomy = width >= _ROOMY
        self._flaky = self._roomy and any(
            (each.node.flake_rate or 0.0) >= _FLAKY for each in self._tree
        )
        self._trends = True
        self._trends = all(
            2
            + cell_len(self._lead(each.node) + each.name)
            + sum(len(text) for text, _ in self._few_numbers(each.node, frame))
            <= width
            for each in self._tree
        )
        rows = [
            self._line(each, frame, width, self.has_focus and index == self._cursor)
            for index, each in enumerate(self._tree)
        ]
        if self._header:
            words = _WEIGHTS if self._shares else ""
            if not self._shares or width >= _ALL_WIDE:
                words = f"live   held  pass  trend      lost  s/rollout {words}"
            else:
                words = f"live   held  pass {words}"
            return [split_row(width, [], [(words, palette.faint)]), *rows]
        return rows

    def _lead(self, node: DatasetView | KindView | TaskView) -> str:
        """Return what stands before a row's name."""
        # Below one of several data sets everything stands further in.
        deep = "  " if node.dataset else ""
        match node:
            case DatasetView():
                fold = "▸ " if node.name in self._folded else "▾ "
                return fold if node.dataset else ""
            case KindView():
                return f"{deep}{'▾' if _fold_name(node) in self._unfolded else '▸'} "
            case TaskView():
                return f"  {deep}{HELD_OUT_MARK if node.split == 'eval' else ' '} "

    def _line(self, each: _Row, frame: Frame, width: int, selected: bool) -> Strip:
        palette, node = frame.palette, each.node
        style = palette.text
        if isinstance(node, DatasetView):
            style = palette.strong
        elif isinstance(node, TaskView) and node.split == "eval":
            style = palette.held_out
        lead = self._lead(node)
        if isinstance(node, TaskView) and node.name in frame.state.unusable:
            lead, style = f"{lead[:-2]}{UNUSABLE_MARK} ", palette.infrastructure
        mark = "▌" if _is_chosen(node, frame) else " "
        left: list[Span] = [
            (mark, palette.accent),
            (lead, None if selected else style),
            (Name(each.name), None if selected else style),
        ]
        if width >= _WIDE:
            right = self._all_numbers(node, frame, most=not self._shares or width >= _ALL_WIDE)
        else:
            right = self._few_numbers(node, frame)
        if selected:
            right = [(text, None) for text, _ in right]
        return split_row(width, left, right, palette.selected if selected else None)

    def _all_numbers(
        self, node: DatasetView | KindView | TaskView, frame: Frame, *, most: bool
    ) -> list[Span]:
        """Return all figures; without `most` those of weights stand in place of the last ones."""
        palette, value, flakes, live = frame.palette, node.recent_rate, node.flake_rate, _live(node)
        held_out, seconds = _held_out(node), _seconds(node, frame.state)
        spans = [
            (f"{live or '':>4} ", palette.accent),
            (f"{rate(held_out) if held_out is not None else '':>6} ", palette.held_out),
            (f"{rate(value):>5} ", palette.muted if value is None else palette.text),
        ]
        weights = self._weights(node, frame) if self._shares else []
        if not most:
            return spans + weights
        return [
            *spans,
            (f" {sparkline(_trend(node)[-48:], 8)} ", palette.muted),
            (f"{_percent(flakes):>6} ", palette.infrastructure if flakes else palette.faint),
            (f"{'–' if seconds is None else number(seconds):>9}  ", palette.text),
            *weights,
        ]

    def _weights(self, node: DatasetView | KindView | TaskView, frame: Frame) -> list[Span]:
        """Return the chance to be drawn, the pass rate's posterior, and what has no signal."""
        palette, tasks = frame.palette, _training_tasks(node)
        wanted = {wish(task) for task in tasks}
        said = wanted.pop() if len(wanted) == 1 else "mixed" if wanted else ""
        share = sum(self._shares.get(task.name, 0.0) for task in tasks)
        constant = no_signal(tasks, frame.state)
        return [
            (f"{said:>7} ", palette.attention),
            (f"{f'{share:.1%}' if tasks else '':>6} ", palette.text),
            (f"{_posterior(node):>14} ", palette.muted),
            (f"{'' if constant is None else f'{constant:.0%}':>9} ", palette.text),
        ]

    def _few_numbers(self, node: DatasetView | KindView | TaskView, frame: Frame) -> list[Span]:
        """Return figures without headings; lost trials stand in place of the trend."""
        palette, value, flakes = frame.palette, node.recent_rate, node.flake_rate
        spans: list[Span] = [
            (f"{_live(node) or '':>3} ", palette.accent),
            (f"{rate(value)} ", palette.muted if value is None else palette.text),
        ]
        if self._roomy and (held_out := _held_out(node)) is not None:
            # What was learned, beside what was trained.
            spans.insert(0, (f" {HELD_OUT_MARK}{rate(held_out)}", palette.held_out))
        if self._roomy and flakes is not None and flakes >= _FLAKY:
            spans.append((f"{f'!{flakes:.0%}':>5} ", palette.infrastructure))
        elif self._shares and self._trends:
            tasks = _training_tasks(node)
            share = sum(self._shares.get(task.name, 0.0) for task in tasks)
            words = wish(node) if isinstance(node, TaskView) else ""
            spans.append((f"{words or (f'{share:.0%}' if tasks else ''):>{_LAST}}", palette.text))
        elif self._trends:
            spans.append((f"{sparkline(_trend(node)[-48:], 5)} ", palette.muted))
        elif self._flaky:
            spans.append((" " * _LAST, None))
        return spans

    def action_move(self, rows: int) -> None:
        self._put(min(max(0, self._cursor + rows), max(0, len(self._tree) - 1)))
        self.reveal(self._cursor + self._header)
        self.redraw()

    def _put(self, index: int) -> None:
        self._cursor = index
        self._under = self._tree[index].id if self._tree else ""

    def action_newest(self) -> None:
        self.action_move(len(self._tree))

    def action_oldest(self) -> None:
        self.action_move(-len(self._tree))

    def action_choose(self) -> None:
        """Show only this row's trials in the grid."""
        if not self._tree:
            return
        match self._tree[self._cursor].node:
            case DatasetView() as dataset:
                self.post_message(self.Chosen(dataset=dataset.dataset))
            case KindView() as kind:
                self.post_message(self.Chosen(kind=kind.name, dataset=kind.dataset))
            case TaskView() as task:
                self.post_message(self.Chosen(task=task.name))

    def action_unfold(self) -> None:
        if not self._tree:
            return
        node = self._tree[self._cursor].node
        if isinstance(node, KindView):
            self._unfolded ^= {_fold_name(node)}
        elif isinstance(node, DatasetView) and node.dataset:
            self._folded ^= {node.name}
        elif isinstance(node, DatasetView):
            names = {kind.name for kind in node.kinds}
            self._unfolded = set() if self._unfolded >= names else names
        app_of(self).remember(unfolded=sorted(self._unfolded), folded=sorted(self._folded))
        self.redraw()

    def _chosen_task(self) -> TaskView | None:
        """Return the training task under the cursor."""
        node = self._tree[self._cursor].node if self._cursor < len(self._tree) else None
        return node if isinstance(node, TaskView) and node.split == "train" else None

    def _weigh(self, arguments: Mapping[str, Any]) -> None:
        node = self._tree[self._cursor].node if self._tree else None
        if isinstance(node, KindView | TaskView):
            self.post_message(self.Weighted(node.name, arguments))

    def action_weigh(self, times: float) -> None:
        self._weigh({"times": times})

    def action_pin_task(self) -> None:
        if (task := self._chosen_task()) is not None:
            self._weigh({"pinned": not task.pinned})

    def action_mute_task(self) -> None:
        if self._tree:
            tasks = _training_tasks(self._tree[self._cursor].node)
            self._weigh({"muted": not all(map(muted, tasks))})

    def action_ask_weight(self) -> None:
        self._weigh({})

    def action_order(self) -> None:
        self._order = TREE_ORDERS[(TREE_ORDERS.index(self._order) + 1) % len(TREE_ORDERS)]
        app_of(self).remember(tree_order=self._order)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        index = -1 if at is None else at.y - self._header
        if 0 <= index < len(self._tree):
            self._put(index)
            if event.chain > 1 or isinstance(self._tree[index].node, TaskView):
                self.action_choose()
            else:
                self.action_unfold()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()


def _training_tasks(node: DatasetView | KindView | TaskView) -> list[TaskView]:
    tasks = [node] if isinstance(node, TaskView) else node.tasks
    return [task for task in tasks if task.split == "train"]


def _posterior(node: DatasetView | KindView | TaskView) -> str:
    """Return a task's pass rate as it is believed to be, with its interval."""
    belief = node.belief if isinstance(node, TaskView) else None
    if belief is None:
        return ""
    return f"{rate(belief.pass_rate)} {rate(belief.low)}–{rate(belief.high)}"


def _in_words(task: TaskView, frame: Frame) -> str:
    """Return what is known of a training task, and wanted of it, in a line."""
    parts = [task.name]
    share = shares(frame.state).get(task.name)
    if said := wish(task):
        parts.append(said)
    if share is not None and weighted(frame.state):
        parts.append(f"drawn {share:.1%}")
    if task.belief is not None:
        parts.append(f"p {_posterior(task)}")
        parts.append(f"no signal {task.belief.no_signal:.0%}")
    return " · ".join(parts)


def _trend(node: DatasetView | KindView | TaskView) -> list[float]:
    return list(node.recent) if isinstance(node, TaskView) else node.trend


def _held_out(node: DatasetView | KindView | TaskView) -> float | None:
    """Pass rate in the latest evaluation; single tasks don't say."""
    return None if isinstance(node, TaskView) else node.held_out_rate


def _live(node: DatasetView | KindView | TaskView) -> int:
    """Return the row's live trials; those of an only data set stand elsewhere."""
    return 0 if isinstance(node, DatasetView) and not node.dataset else node.live


def _seconds(node: DatasetView | KindView | TaskView, state: RunState) -> float | None:
    if isinstance(node, TaskView):
        return seconds_per_rollout(state, node.name)
    return node.seconds


def _is_chosen(node: DatasetView | KindView | TaskView, frame: Frame) -> bool:
    """Whether the grid shows this row's trials alone."""
    wanted = frame.listing.filter
    match node:
        case KindView():
            return (wanted.kind, wanted.dataset) == (node.name, node.dataset)
        case TaskView():
            return wanted.task == node.name
        case DatasetView():
            return bool(node.dataset) and wanted.dataset == node.dataset and not wanted.kind


def _fold_name(kind: KindView) -> str:
    return f"{kind.dataset}/{kind.name}" if kind.dataset else kind.name


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"
