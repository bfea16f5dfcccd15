"""Time: of the latest steps, with what the run waits for."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.charts import stacked
from tbtui.ui.drawing.rows import Span, row, sentence, split_row
from tbtui.ui.drawing.text import visible
from tbtui.ui.panes.lane_rows import lane_rows
from tbtui.ui.panes.pane import MOMENT, Frame, Pane
from tbtui.ui.theme.palette import Palette
from tbtui.view.state import ACTIVITIES, Activity, RunState
from tbtui.view.times import StepTimes, remaining_sec, step_times, time_left
from tbtui.view.waiting import duration, waiting_for
from tbtui.vocabulary import RunPhase

_MARKS: dict[Activity, str] = {
    "starting": "·",
    "sampling": "█",
    "waiting": "░",
    "reviewing": "◆",
    "training": "▓",
    "saving": "▁",
    "evaluating": "▒",
    "paused": "‖",
}
"""What fills a bar; distinct without colour too."""
_NO_SIGNAL_MARK = "="
"""Before the number of groups without signal: nothing of them was trained on."""
_CUT_MARK = "»"
"""At the end of a bar that is cut short: its seconds stand beside it."""
_FLATTENS = 3.0
"""Times as long as the next longest step from where on a bar is cut,"""
_MOST_LONGER = 1.2
"""and times as long as that one's it is then."""
_LANES_HEIGHT = 9
"""Rows of the pane from where on there is room for lanes above the bars."""
_AFTERS = 2
"""Further trials that are named after the one that is waited for."""


class TimelinePane(Pane):
    """One bar a step, the latest last, all on one scale."""

    EVERY = MOMENT

    class Chosen(Message):
        """A step was clicked."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._steps: dict[int, int] = {}
        """Row -> step."""

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is not None and at.y in self._steps:
            self.post_message(self.Chosen(self._steps[at.y]))

    def title(self, frame: Frame) -> str:
        return "step timeline"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        what = (len(state.timeline), state.step, state.phase, state.paused)
        return what, int(frame.now), waiting_for(frame.outlook)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        steps = step_times(state.timeline, frame.now, max(1, height - 2))
        if not steps:
            return sentence(" once the run has begun", palette.faint, width)
        rows = _waiting(frame, width)
        if height >= _LANES_HEIGHT:
            rows += lane_rows(state, frame.now, palette, width)
        silent = _without_signal(state, {each.step for each in steps})
        legend = _legend(steps, silent, palette, width)
        steps = steps[-max(1, height - len(rows) - len(legend)) :]
        legend = _legend(steps, silent, palette, width)
        self._steps = {len(rows) + place: each.step for place, each in enumerate(steps)}
        longest = _longest([each.total for each in steps])
        bars = [_bar(each, longest, silent, palette, width) for each in steps]
        return [*rows, *bars, *legend]


def _waiting(frame: Frame, width: int) -> list[Strip]:
    """Rows of the trials that the run waits for."""
    palette, state = frame.palette, frame.state
    if state.status is not None or state.started_at is None:
        return []
    words = _without_what_has_no_room(waiting_for(frame.outlook), width - len(_NOW))
    spans: list[Span] = [(_NOW, palette.muted), (words, palette.text)]
    room = width - len(_NOW) - cell_len(words)
    if state.phase in (RunPhase.SAMPLING, RunPhase.EVALUATING) and not state.paused:
        for trial in frame.outlook.holding_up[1 : 1 + _AFTERS]:
            remaining = remaining_sec(trial, state, frame.now)
            left = "" if remaining is None else f" {time_left(remaining)}"
            after = f", {visible(trial.label)}{left}"
            room -= cell_len(after)
            if room < 0:
                break
            spans.append((after, palette.muted))
    return [row(width, *spans)]


_NOW = " now: "


def _without_what_has_no_room(words: str, width: int) -> str:
    """`copy-03/2 (turn 2, acting, ~2s left)`, in a narrow pane without the middle of what is in
    brackets, then without its end."""
    name, bracket, rest = words.rstrip(")").rpartition(" (")
    parts = rest.split(", ")
    while bracket and parts and cell_len(words) > width:
        parts.pop(1 if len(parts) > 2 else -1)
        words = f"{name} ({', '.join(parts)})" if parts else name
    return words


def _without_signal(state: RunState, steps: Collection[int]) -> dict[int, tuple[int, int]]:
    """Map each step to its groups without signal, and its scored groups."""
    return {
        step.step: (sum(not signal for signal in step.signals.values()), len(step.signals))
        for step in state.steps
        if step.step in steps and step.signals
    }


def _bar(
    step: StepTimes,
    longest: float,
    silent: Mapping[int, tuple[int, int]],
    palette: Palette,
    width: int,
) -> Strip:
    styles = _styles(palette)
    number = f" {step.step:>3} "
    seconds = f" {duration(step.total):>6} "
    # A column of its own, as long as there is a step with one.
    count = max((len(str(most)) for most, _ in silent.values() if most), default=0)
    constant, _ = silent.get(step.step, (0, 0))
    groups = f"{_NO_SIGNAL_MARK}{constant}" if constant else ""
    groups = f" {groups:<{count + 1}}" if count else ""
    room = max(1, width - len(number) - len(groups) - len(seconds) - 1)
    cut = step.total > longest
    cells = max(1, min(room, round(room * step.total / longest))) if longest else 1
    bars: list[Span] = [
        (_MARKS[name] * count, styles[name]) for name, count in stacked(step.seconds, cells - cut)
    ]
    if cut:
        bars.append((_CUT_MARK, palette.attention))
    style = palette.text if step.live else palette.muted
    return split_row(width, [(number, style), *bars], [(groups, palette.muted), (seconds, style)])


def _longest(totals: list[float]) -> float:
    """What a whole bar stands for: the longest step, without one that would flatten the others."""
    second, longest = sorted([0.0, *totals])[-2:]
    return second * _MOST_LONGER if second and longest > second * _FLATTENS else longest


def _legend(
    steps: list[StepTimes], silent: Mapping[int, tuple[int, int]], palette: Palette, width: int
) -> list[Strip]:
    """The legend, with each mark's share of the time shown."""
    styles = _styles(palette)
    sums = {
        name: total
        for name in ACTIVITIES
        if (total := sum(step.seconds.get(name, 0.0) for step in steps)) > 0
    }
    whole = sum(sums.values())
    rows: list[list[Span]] = [[]]
    used = 0
    entries: list[list[Span]] = [
        [(f" {_MARKS[name]} ", styles[name]), (f"{name} {seconds / whole:.0%} ", palette.muted)]
        for name, seconds in sums.items()
    ]
    shown = [silent[step.step] for step in steps if step.step in silent]
    if constant := sum(each for each, _ in shown):
        scored = sum(each for _, each in shown)
        entries.append(
            [(f" {_NO_SIGNAL_MARK} groups without signal {constant}/{scored} ", palette.muted)]
        )
    for spans in entries:
        size = sum(len(text) for text, _ in spans)
        if used + size > width and rows[-1]:
            rows.append([])
            used = 0
        rows[-1] += spans
        used += size
    return [row(width, *spans) for spans in rows]


def _styles(palette: Palette) -> dict[Activity, Style]:
    return {
        "starting": palette.faint,
        "sampling": palette.spending["sampling"],
        "waiting": palette.spending["paused"],
        "reviewing": palette.attention,
        "training": palette.good,
        "saving": palette.muted,
        "evaluating": palette.spending["verifying"],
        "paused": palette.attention,
    }
