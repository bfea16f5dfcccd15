"""The chart screen: any two metrics of the shown run, and of marked ones, on a shared x axis."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static
from textual.worker import Worker

from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import PathError, expanded
from tbtui.ui.context import app_of, run_app_of
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.charts import ChartPane, MetricList
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine, filter_line
from tbtui.ui.panes.pane import Redraw
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.textual_seam import Columns, Rows
from tbtui.view.chart_files import chart_file_name, chart_format, write_chart
from tbtui.view.charts import (
    SMOOTHINGS,
    Chart,
    ChartAxis,
    ChartReader,
    ChartRequest,
    available,
    next_axis,
    panned,
    zoomed,
)

_AGAIN_SEC = 2.0
"""Between two looks whether a journal has grown."""


class ChartScreen(LiveScreen):
    """Charts of metrics, read and thinned on a thread."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("chart-metrics", "charts", "everywhere")
    BINDINGS = bindings("charts")
    AUTO_FOCUS = "#chart-metrics"
    OVERVIEW = ("chart-metrics", "chart-plots")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {1: ("chart-metrics",), 2: ("chart-plots",)}
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "chart-left": ("chart-metrics",),
        "chart-right": ("chart-plots",),
    }

    def __init__(self, metric: str = "") -> None:
        """`metric`: what to draw; empty: training reward and held-out pass rate."""
        super().__init__()
        self.request = ChartRequest((metric,)) if metric else ChartRequest()
        self.chart: Chart | None = None
        self._reader = ChartReader()
        self._reading: Worker[None] | None = None
        self._drawn: Hashable = None
        """What the chart is of."""

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Columns(id="charts"):
            with Rows(id="chart-left"):
                yield MetricList("chart-metrics")
            with Rows(id="chart-right"):
                yield ChartPane("chart-plots")
        yield KeyBar("keys", *self.SCOPES, back=WayBack("charts-back", "show all"))

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(MetricList).pinned = tuple(app_of(self).user.preferences.curves)
        self._read_again()
        self.set_interval(_AGAIN_SEC, self._read_again)

    @property
    def runs(self) -> tuple[RunDirectory, ...]:
        """The shown run, then the marked ones."""
        app = run_app_of(self)
        return tuple(dict.fromkeys((app.live_run.directory, *app.marked_runs)))

    @property
    def _until(self) -> int | None:
        """The last event of the shown run that a replay's clock has come to; None: no replay."""
        run = run_app_of(self).live_run
        return None if run.replay is None else run.state.seq

    def _read_again(self) -> None:
        if self.is_current and (self._reading is None or self._reading.is_finished):
            self._reading = self.run_worker(self._read(), name="charts")

    async def _read(self) -> None:
        """Read until the chart is what is asked for."""
        while True:
            pane = self.query_one(ChartPane)
            columns = max(40, pane.size.width or self.app.size.width)
            wanted = self.runs, self.request, columns, self._until
            stands = await asyncio.to_thread(self._reader.stands, wanted[0])
            if (wanted, stands) != self._drawn:
                chart = await asyncio.to_thread(self._reader.read, *wanted)
                if self.chart is None and chart.names:
                    # What is usual may be missing in this run.
                    usual = available(self.request.metrics, chart.names)
                    self.request = replace(self.request, metrics=usual)
                self._drawn = wanted, stands
                self._take(chart)
            # A replay's clock goes on meanwhile: that is for the next look.
            if (self.runs, self.request) == wanted[:2]:
                return

    def _take(self, chart: Chart) -> None:
        pane, metrics = self.query_one(ChartPane), self.query_one(MetricList)
        self.chart = pane.chart = chart
        metrics.take(chart.names, chart.request.metrics)
        self.post_message(Redraw())

    def draw(self, metric: str) -> None:
        """Draw this metric above, in place of what is drawn there; empty: leave it as it is."""
        if metric:
            below = self.request.metrics[1:]
            self._draw((metric, *(name for name in below if name != metric)))

    def _draw(self, metrics: tuple[str, ...]) -> None:
        axis: ChartAxis = "step" if self.request.axis == "position" else self.request.axis
        self._ask(replace(self.request, metrics=metrics, axis=axis))

    def _ask(self, request: ChartRequest) -> None:
        """Draw something else, or otherwise."""
        self.request = request
        self._read_again()

    def on_screen_resume(self, event: object) -> None:
        # Runs may have been marked meanwhile.
        self._read_again()

    def on_metric_list_chosen(self, event: MetricList.Chosen) -> None:
        drawn = self.request.metrics
        if event.metric in drawn and len(drawn) > 1:
            self._draw(tuple(name for name in drawn if name != event.metric))
        elif event.below:
            self._draw(tuple(dict.fromkeys((drawn[0], event.metric))))
        else:
            self.draw(event.metric)
        if self.full == 1:
            self.action_full(0)

    def idle_keys(self) -> Iterable[str]:
        if self.request.window is None:
            yield from ("charts-whole", "charts-out", "charts-pan-left", "charts-pan-right")
        if self.chart is None:
            yield "charts-export"
        if self.request.metrics == (self.query_one(MetricList).chosen,):
            yield from ("draw-metric", "draw-below")
        points, cursor = self.query_one(ChartPane).points, self.query_one(ChartPane).cursor
        if not points or (self.request.window is None and cursor == points[0]):
            yield "charts-cursor-left"
        if not points or (self.request.window is None and cursor == points[-1]):
            yield "charts-cursor-right"

    def action_axis(self) -> None:
        axis = next_axis(self.request.axis, self.chart.names if self.chart is not None else ())
        self.query_one(ChartPane).cursor = None
        self._ask(replace(self.request, axis=axis, window=None))

    def action_profile(self) -> None:
        """Show entropy (mean -log p) by token position, or the metrics again."""
        axis: ChartAxis = "step" if self.request.axis == "position" else "position"
        self.query_one(ChartPane).cursor = None
        self._ask(replace(self.request, axis=axis, window=None))

    def action_profile_step(self, by: int) -> None:
        steps = self.chart.steps if self.chart is not None else ()
        if self.request.axis != "position" or not steps:
            self.notify("A profile by token position has steps: press p first.", timeout=3)
            return
        at = steps.index(self.request.step) if self.request.step in steps else len(steps) - 1
        step = steps[min(len(steps) - 1, max(0, at + by))]
        self._ask(replace(self.request, step=step))

    def action_smoothing(self) -> None:
        place = SMOOTHINGS.index(self.request.smoothing) + 1
        self._ask(replace(self.request, smoothing=SMOOTHINGS[place % len(SMOOTHINGS)]))

    def action_band(self) -> None:
        self._ask(replace(self.request, band=not self.request.band))

    def action_logarithmic(self) -> None:
        self._ask(replace(self.request, log=not self.request.log))

    def action_outliers(self) -> None:
        self._ask(replace(self.request, clip=not self.request.clip))

    def action_zoom(self, factor: float) -> None:
        self._zoom(factor, self.query_one(ChartPane).cursor)

    def on_chart_pane_zoomed(self, event: ChartPane.Zoomed) -> None:
        self._zoom(event.factor, event.x)

    def _zoom(self, factor: float, around: float | None) -> None:
        if self.chart is not None:
            self._ask(replace(self.request, window=zoomed(self.chart, factor, around).window))

    def action_pan(self, share: float) -> None:
        if self.chart is not None:
            self._ask(replace(self.request, window=panned(self.chart, share).window))

    def action_whole(self) -> None:
        self._ask(replace(self.request, window=None))

    def action_cursor(self, points: int) -> None:
        if self.query_one(ChartPane).move_cursor(points):
            self.action_pan(0.5 if points > 0 else -0.5)

    def action_pin(self) -> None:
        """Show the chosen metric in the cockpit's curves, or no more."""
        metrics = self.query_one(MetricList)
        if (chosen := metrics.chosen) is None:
            return
        pinned = tuple(name for name in metrics.pinned if name != chosen)
        metrics.pinned = pinned if chosen in metrics.pinned else (*pinned, chosen)
        app_of(self).remember(curves=list(metrics.pinned))
        self.post_message(Redraw())

    async def action_filter(self) -> None:
        if self.full == 2:
            self.action_full(0)
        if not self.query(WordsLine):
            line = filter_line(self.query_one(MetricList).words, "words of a metric's name")
            await self.query_one("#chart-left").mount(line, before="#chart-metrics")
        self.set_focus(self.query_one("#filter"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(MetricList).words = event.value.strip()
        self.post_message(Redraw())

    def on_input_submitted(self) -> None:
        self._close_box()

    def _close_box(self) -> None:
        self.query(WordsLine).remove()
        self.set_focus(self.query_one(MetricList))

    def action_back(self) -> None:
        metrics, pane = self.query_one(MetricList), self.query_one(ChartPane)
        if self.query(WordsLine) or metrics.words:
            metrics.words = ""
            self._close_box()
            self.post_message(Redraw())
        elif self.full:
            self.action_full(0)
        elif pane.cursor is not None:
            pane.cursor = None
            self.post_message(Redraw())
        else:
            self.dismiss()

    def action_export(self) -> None:
        if self.chart is None:
            return
        run = run_app_of(self).live_run.directory.name
        metrics = tuple(panel.metric for panel in self.chart.panels)
        name = chart_file_name(run, metrics, "svg")
        self.app.push_screen(ChartExportDialog(Path.cwd() / name), self._export)

    def _export(self, path: Path | None) -> None:
        if path is not None and self.chart is not None:
            self.run_worker(self._write(self.chart, path), name="export")

    async def _write(self, chart: Chart, path: Path) -> None:
        try:
            await asyncio.to_thread(write_chart, chart, path)
        except UserError as error:
            self.app.notify(str(error), title="Not exported", severity="error", markup=False)
        else:
            self.app.notify(str(path), title="Exported", timeout=8, markup=False)


class ChartExportDialog(Dialog[Path | None]):
    """Asks for a new file, whose ending says the format; None: write nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "go back")]
    AUTO_FOCUS = "#path"

    def __init__(self, offered: Path) -> None:
        super().__init__()
        self._offered = offered

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content("Export the chart"), id="question")
            yield Static(Content(".svg: the picture; .csv: the recorded values"), id="detail")
            yield Input(str(self._offered), id="path", compact=True)
            yield Static("", id="problem")
            yield Hint(("enter  write", "write"), ("esc  go back", "give_up"))

    def on_input_submitted(self) -> None:
        self.action_write()

    def action_write(self) -> None:
        try:
            path = expanded(self.query_one("#path", Input).value.strip() or self._offered)
            if path.is_dir():
                path = expanded(path / self._offered.name)
            chart_format(path)
        except (PathError, UserError) as error:
            self._refuse(str(error))
            return
        if path.exists():
            self._refuse(f"{path.name} exists already; choose another name")
            return
        self.dismiss(path)

    def _refuse(self, reason: str) -> None:
        self.query_one("#problem", Static).update(Content(visible(reason)))

    def action_give_up(self) -> None:
        self.dismiss(None)
