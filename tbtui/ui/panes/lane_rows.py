"""Rows of what the sampler and the trainer did during the latest two steps."""

from __future__ import annotations

from rich.style import Style
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.theme.palette import Palette
from tbtui.view.lanes import MAX_SLICES, SLICE_SEC, LaneCell, Work, lanes
from tbtui.view.state import RunState
from tbtui.view.waiting import duration

_MARKS: dict[Work, str] = {"training": "▓", "publishing": "↑", "saving": "▁"}
"""Marks of the trainer's work; as in the bars below."""
_SAMPLER = "▁▂▃▄▅▆▇█"
"""How much of a cell's time the sampler was busy."""
_IDLE = "·"
_NEARLY_IDLE = 1 / 16
_STEPS = 2
_NAME = 9
_NUMBER = len(" idle 100% ")
_LEAST_SHARE = 0.005
_LEAST = 8
"""Cells: fewer show nothing."""


def lane_rows(state: RunState, now: float, palette: Palette, width: int) -> list[Strip]:
    """A row of each lane with its idle share, and one with the trainer's shares; none where
    there is no room, and before the run samples."""
    since = _since(state)
    room = width - _NAME - _NUMBER
    if since is None or room < _LEAST:
        return []
    until = now if state.finished_at is None else state.finished_at
    since = max(since, until - MAX_SLICES * SLICE_SEC)
    shown = lanes(state.lanes, since, until, room)
    rows = []
    for lane in shown:
        cells = [_cell(each, palette) for each in lane.cells]
        number = f" idle {lane.idle:.0%} "
        rows.append(
            row(
                width,
                (f" {lane.lane:<{_NAME - 1}}", palette.muted),
                *cells,
                (f"{number:>{_NUMBER}}", palette.text),
            )
        )
    if not shown:
        return []
    # The sampler has one work: its idle share says it all.
    works = {w: share for lane in shown for w, share in lane.shares.items() if w in _MARKS}
    spans: list[Span] = [(f" last {duration(until - since)} ", palette.muted)]
    for work, share in works.items():
        if share >= _LEAST_SHARE:
            spans.append((f" {_MARKS[work]}", _mark_style(work, palette)))
            spans.append((f" {work} {share:.0%}", palette.muted))
    return [*rows, row(width, *spans)]


def _mark_style(work: Work, palette: Palette) -> Style:
    return palette.muted if work == "saving" else palette.good


def _since(state: RunState) -> float | None:
    """When the step before the current one began; None before there is any."""
    since, steps = None, set[int]()
    for stretch in reversed(state.timeline):
        steps.add(stretch.step)
        if stretch.activity == "starting" or len(steps) > _STEPS:
            break
        since = stretch.since
    return since


def _cell(cell: LaneCell | None, palette: Palette) -> Span:
    if cell is None:
        return " ", palette.faint
    if cell.work is None or cell.share < _NEARLY_IDLE:
        return _IDLE, palette.faint
    if cell.work == "sampling":
        level = min(len(_SAMPLER) - 1, int(cell.share * len(_SAMPLER)))
        return _SAMPLER[level], palette.spending["sampling"]
    return _MARKS[cell.work], _mark_style(cell.work, palette)
