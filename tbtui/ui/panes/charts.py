"""The panes of the chart screen: the metrics that there are, and the chart of the chosen ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.charts import Axis, Plot, Series, plot
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.palette import Palette
from tbtui.view.chart_files import settings_in_words
from tbtui.view.charts import MOST_BANDS, Chart, Line, Panel, x_in_words
from tbtui.view.curves import SIGNALS

_FIRST = ("env/all/reward/total", "eval/pass_rate", *(each.metric for each in SIGNALS))
"""Metrics at the top of the list."""
_MOST_NAMED = 4
"""Runs of which the heading has the values."""
_WHEEL = 0.8


def figure(value: float) -> str:
    """A value in at most eight cells: `.031`, `12.4`, `32`, `31,000`, `2e-14`."""
    if value and value == round(value):
        return f"{value:,.0f}"
    if value and abs(value) < 0.001:
        return f"{value:.1e}"
    if abs(value) < 10:
        return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def run_styles(palette: Palette) -> tuple[Style, ...]:
    """Styles of runs, in their order; more runs begin with the first again."""
    return (
        palette.accent,
        palette.attention,
        palette.held_out,
        palette.good,
        palette.bad,
        palette.infrastructure,
    )


class MetricList(Pane):
    """Every metric of the shown run, those drawn marked 1 and 2; the choice stays with its name."""

    BINDINGS = bindings("chart-metrics")
    EVERY = 2

    class Chosen(Message):
        """A metric is to be drawn: above, or `below` the other one, or there no more."""

        def __init__(self, metric: str, *, below: bool) -> None:
            super().__init__()
            self.metric, self.below = metric, below

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.words = ""
        """The filter's words."""
        self.pinned: tuple[str, ...] = ()
        """Metrics that the cockpit's curves show."""
        self._names: tuple[str, ...] = ()
        self._drawn: tuple[str, ...] = ()
        self._chosen = ""
        self._place = -1

    def take(self, names: Sequence[str], drawn: tuple[str, ...]) -> None:
        """List these metrics, of which some are drawn."""
        known = set(names)
        first = [name for name in _FIRST if name in known]
        self._names = (*first, *(name for name in names if name not in first))
        self._drawn = drawn
        self._chosen = self._chosen or next(iter(drawn), "")

    @property
    def listed(self) -> list[str]:
        words = self.words.lower().split()
        return [name for name in self._names if all(word in name.lower() for word in words)]

    @property
    def chosen(self) -> str | None:
        listed = self.listed
        return listed[self._index(listed)] if listed else None

    def title(self, frame: Frame) -> str:
        shown = len(self.listed)
        count = f"{shown} of {len(self._names)}" if self.words else f"{len(self._names)}"
        return f"metrics {count}" + (f" · {self.words!r}" if self.words else "")

    def key(self, frame: Frame) -> Hashable:
        steps = len(frame.state.steps), frame.state.step
        return self._names, self._drawn, self._chosen, self.words, self.pinned, steps

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, listed = frame.palette, self.listed
        if not listed:
            text = f" no metric with {self.words!r}" if self.words else " none recorded yet"
            return [row(width, (text, palette.faint))]
        here = self._index(listed)
        rows = []
        for index, name in enumerate(listed):
            drawn = name in self._drawn
            mark = f"{self._drawn.index(name) + 1}" if drawn else " "
            pin = "•" if name in self.pinned else " "
            value = frame.state.latest_metric(name)
            rows.append(
                split_row(
                    width,
                    [
                        (mark, palette.accent),
                        (pin, palette.attention),
                        (Name(name), palette.strong if drawn else palette.text),
                    ],
                    [] if value is None else [(f"{figure(value)} ", palette.muted)],
                    palette.on_raised if index == here else None,
                )
            )
        return rows

    def show(self, frame: Frame) -> None:
        super().show(frame)
        listed = self.listed
        place = self._index(listed) if listed else 0
        if place != self._place:
            self._place = place
            self.reveal(place)

    def action_move(self, rows: int) -> None:
        if listed := self.listed:
            index = min(len(listed) - 1, max(0, self._index(listed) + rows))
            self._chosen = listed[index]
            self.redraw()

    def action_newest(self) -> None:
        self.action_move(len(self._names))

    def action_oldest(self) -> None:
        self.action_move(-len(self._names))

    def action_draw(self, below: bool) -> None:
        if (chosen := self.chosen) is not None:
            self.post_message(self.Chosen(chosen, below=below))

    def on_click(self, event: events.Click) -> None:
        at, listed = self.place_of(event), self.listed
        if at is not None and 0 <= at.y < len(listed):
            self._chosen = listed[at.y]
            self.action_draw(below=False)
            self.redraw()

    def _index(self, listed: Sequence[str]) -> int:
        return listed.index(self._chosen) if self._chosen in listed else 0


class ChartPane(Pane):
    """A chart's panels below each other, on one x axis and with one cursor."""

    EVERY = 1

    class Zoomed(Message):
        """The wheel was turned over a place of the x axis."""

        def __init__(self, factor: float, x: float) -> None:
            super().__init__()
            self.factor, self.x = factor, x

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.chart: Chart | None = None
        self.cursor: float | None = None
        """On the x axis; None: values are the last ones."""
        self._plot = (0, 1)
        """First column of the plot, and its columns."""
        self._drawn: tuple[Chart | None, Hashable, list[Plot]] = (None, None, [])
        """A chart, how it was drawn, and its panels: the cursor moves over them."""
        self._xs: tuple[Chart | None, list[float]] = (None, [])
        """Where a chart's drawn points are on the x axis, in order."""

    def title(self, frame: Frame) -> str:
        if self.chart is None:
            return "charts"
        return "charts · " + (settings_in_words(self.chart) or "as recorded")

    def key(self, frame: Frame) -> Hashable:
        return id(self.chart), self.cursor

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, chart = frame.palette, self.chart
        if chart is None:
            return [row(width, (" reading the journal", palette.faint))]
        rows = [row(width, (f" {trouble}", palette.bad)) for trouble in chart.troubles[:2]]
        runs = list(dict.fromkeys(line.run for panel in chart.panels for line in panel.lines))
        if len(runs) > 1:
            rows.append(_legend(runs, palette, width))
        rows += self._panels(chart, palette, width, height - len(rows))
        return rows

    def _panels(self, chart: Chart, palette: Palette, width: int, height: int) -> list[Strip]:
        cursor = None if self.cursor is None else (self.cursor, palette.faint)
        how = palette, width, height
        if self._drawn[0] is not chart or self._drawn[1] != how:
            self._drawn = chart, how, self._plots(chart, palette, width, height)
        rows: list[Strip] = []
        for panel, drawn in zip(chart.panels, self._drawn[2], strict=True):
            rows.append(self._head(chart, panel, palette, width))
            rows += [row(width, *spans) for spans in drawn.rows(cursor)]
            if not any(line.shown for line in panel.lines):
                rows[-(_each(chart, height) // 2)] = row(
                    width, ("       nothing recorded of this metric yet", palette.faint)
                )
        return rows

    def _plots(self, chart: Chart, palette: Palette, width: int, height: int) -> list[Plot]:
        x_axis = Axis(chart.low, chart.high, label=lambda x: x_in_words(chart.request.axis, x))
        each = _each(chart, height)
        axes = [Axis(panel.low, panel.high, panel.log) for panel in chart.panels]
        plotted = max(2, (each - 1) // 3)
        margin = max(len(label) for axis in axes for _, label in axis.marks(plotted) or [(0, "")])
        self._plot = margin + 2, max(1, width - margin - 4)
        last = len(chart.panels) - 1
        return [
            plot(
                _series(chart, panel, palette),
                width - 1,
                height - last * each - 1 if place == last else each - 1,
                x_axis,
                y_axis,
                palette.muted,
                margin=margin,
                below=place == last,
            )
            for place, (panel, y_axis) in enumerate(zip(chart.panels, axes, strict=True))
        ]

    def _head(self, chart: Chart, panel: Panel, palette: Palette, width: int) -> Strip:
        """The metric, its values at the cursor, and what is out of sight."""
        left: list[Span] = [(" ", None), (Name(panel.metric), palette.strong)]
        if panel.clipped:
            left.append((f"  outliers: {panel.clipped}", palette.attention))
        right: list[Span] = []
        styles = run_styles(palette)
        # The last token of the longest answer says nothing of a profile.
        named = panel.lines if self.cursor is not None or chart.request.axis != "position" else ()
        for place, line in enumerate(named[:_MOST_NAMED]):
            point = line.at(self.cursor)
            if point is None:
                continue
            right.append((f" {figure(point.y)}", styles[place % len(styles)]))
            if point.low != point.high and width >= 60:
                right.append((f" {figure(point.low)}–{figure(point.high)}", palette.muted))
        if self.cursor is None:
            right.append(("  latest " if named else "", palette.muted))
        else:
            where = x_in_words(chart.request.axis, self.cursor)
            right.append((f"  {chart.x_label} {where} ", palette.muted))
        return split_row(width, left, right)

    @property
    def points(self) -> list[float]:
        """Where there are drawn points, on the x axis."""
        if self.chart is None:
            return []
        if self._xs[0] is not self.chart:
            drawn = [line.drawn for panel in self.chart.panels for line in panel.lines]
            self._xs = self.chart, sorted({point.x for line in drawn for point in line})
        return self._xs[1]

    def move_cursor(self, points: int) -> bool:
        """Move the cursor over so many drawn points; says whether it has left the window."""
        xs = self.points
        if self.chart is None or not xs:
            return False
        if self.cursor is None:
            place = len(xs) - 1 if points < 0 else 0
        elif points > 0:
            place = bisect_right(xs, self.cursor) + points - 1
        else:
            place = bisect_left(xs, self.cursor) + points
        self.cursor = xs[min(len(xs) - 1, max(0, place))]
        self.redraw()
        return not self.chart.low <= self.cursor <= self.chart.high

    def on_click(self, event: events.Click) -> None:
        if (x := self._x_at(event)) is not None:
            self.cursor = x
            self.redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, _WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1 / _WHEEL)

    def _wheel(self, event: events.MouseEvent, factor: float) -> None:
        event.stop()
        if (x := self._x_at(event)) is not None:
            self.post_message(self.Zoomed(factor, x))

    def _x_at(self, event: events.MouseEvent) -> float | None:
        at, (first, columns) = self.place_of(event), self._plot
        if at is None or self.chart is None or not 0 <= at.x - first < columns:
            return None
        share = (at.x - first) / max(1, columns - 1)
        return self.chart.low + share * (self.chart.high - self.chart.low)


def _each(chart: Chart, height: int) -> int:
    """Rows of a panel, its heading included; the last one has what is left."""
    return max(3, (height - 2) // len(chart.panels))


def _series(chart: Chart, panel: Panel, palette: Palette) -> list[Series]:
    """The first run's line on top."""
    styles = run_styles(palette)
    banded = chart.request.band and len(panel.lines) <= MOST_BANDS
    drawn = [
        _line(line, styles[place % len(styles)], palette, banded=banded)
        for place, line in enumerate(panel.lines)
    ]
    return drawn[::-1]


def _line(line: Line, style: Style, palette: Palette, *, banded: bool) -> Series:
    wide = banded and any(point.low != point.high for point in line.drawn)
    return Series(
        tuple((point.x, point.y) for point in line.drawn),
        style,
        marks=len(line.drawn) <= _MARKED,
        band=tuple((point.x, point.low, point.high) for point in line.drawn) if wide else (),
        band_style=palette.faint,
    )


_MARKED = 24
"""Points of a line up to which each is marked."""


def _legend(runs: Sequence[str], palette: Palette, width: int) -> Strip:
    styles = run_styles(palette)
    spans: list[Span] = []
    for place, run in enumerate(runs):
        spans += [(" ━ ", styles[place % len(styles)]), (Name(run), palette.text), (" ", None)]
    return split_row(width, spans, [(f" {len(runs)} runs ", palette.muted)])
