"""What a chart of metrics shows: one or two metrics of one or more runs over a shared x. Pure, but
for `ChartReader`, which reads journals."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from tbtui.journal.database import JournalError
from tbtui.journal.metrics import (
    SPENT,
    X_AXES,
    Point,
    Points,
    Profile,
    XAxis,
    metric_names,
    profile_steps,
    read_profile,
    read_series,
)
from tbtui.journal.rundir import RunDirectory, journal_stands
from tbtui.view.curves import fences
from tbtui.view.waiting import duration

ChartAxis = XAxis | Literal["position"]
"""`position`: of the token in the answer; the chart is a profile of one step then."""
CHART_AXES: tuple[ChartAxis, ...] = (*X_AXES, "position")
AXIS_WORDS: dict[ChartAxis, str] = {
    "step": "step",
    "time": "time",
    "rollouts": "rollouts",
    "tokens": "sampled tokens",
    "dollars": "dollars",
    "position": "token position",
}
PROFILE = "mean -log p by token position"
ENTROPY_PROFILE = "entropy by token position: mean -log p"
"""The one metric of a profile; the second where all is sampled at temperature 1, so that the mean
estimates the entropy."""

SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99)
"""Weights of the exponential moving average."""
_ROUNDING = 1e-6
"""What sums of 32-bit numbers differ by."""
_SMALLEST = 1e-300
"""Least value on a logarithmic axis: powers of ten below it lose their digits, and become 0."""
_NARROWEST = 1e-3
"""Share of all x that a window shows at least."""


@dataclass(frozen=True, slots=True)
class ChartRequest:
    """What is to be drawn, and how."""

    metrics: tuple[str, ...] = ("env/all/reward/total", "eval/pass_rate")
    """One, or two, the second below the first."""
    axis: ChartAxis = "step"
    smoothing: float = 0.0
    """Weight of the exponential moving average, from 0 to below 1."""
    band: bool = True
    log: bool = False
    clip: bool = True
    """Outliers don't stretch the y axis."""
    window: tuple[float, float] | None = None
    """The x that are shown; None: all."""
    step: int | None = None
    """The step whose profile is drawn; None: the last one."""


def available(metrics: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    """Those of the metrics that a run has; where it has none of them, its first one."""
    known = tuple(name for name in metrics if name in names)
    return known or tuple(names[:1]) or metrics


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one run."""

    run: str
    metric: str
    recorded: Points
    """As recorded, over all x."""
    shown: Points
    """Smoothed, over all x."""
    drawn: Points
    """The points in the window, at most one a column."""

    def at(self, x: float | None) -> Point | None:
        """The point nearest to x, or the last one."""
        if not self.shown or x is None:
            return self.shown[-1] if self.shown else None
        place = bisect_left(self.shown, x, key=lambda point: point.x)
        return min(self.shown[max(0, place - 1) : place + 1], key=lambda point: abs(point.x - x))


@dataclass(frozen=True, slots=True)
class Panel:
    metric: str
    lines: tuple[Line, ...]
    low: float
    high: float
    """Ends of the y axis, in the metric's unit; with a logarithmic axis above zero."""
    log: bool
    """The y axis is logarithmic: it was asked for, and some values are above zero."""
    above: int = 0
    below: int = 0
    """Outliers beyond the ends; with a logarithmic axis values at or below zero, too."""

    @property
    def clipped(self) -> str:
        """`2 above .31, 1 below .02`; empty where all is in sight."""
        ends = ((self.above, "above", self.high), (self.below, "below", self.low))
        return ", ".join(f"{count} {where} {end:.3g}" for count, where, end in ends if count)


@dataclass(frozen=True, slots=True)
class Chart:
    """All that a screen or a file draws."""

    request: ChartRequest
    panels: tuple[Panel, ...] = ()
    low: float = 0.0
    high: float = 1.0
    """The window on x,"""
    first: float = 0.0
    last: float = 1.0
    """and all that there is."""
    names: tuple[str, ...] = ()
    """Metrics that the first run has."""
    steps: tuple[int, ...] = ()
    """Those that have a profile."""
    about: str = ""
    """What a profile is of."""
    troubles: tuple[str, ...] = ()
    """Why runs are missing."""

    @property
    def x_label(self) -> str:
        return AXIS_WORDS[self.request.axis]


def x_in_words(axis: ChartAxis, x: float) -> str:
    """A place on the x axis: `12`, `4m05s`, `31,000`, `1.20`."""
    if axis == "time":
        return duration(x)
    return f"{x:,.2f}" if axis == "dollars" else f"{x:,.0f}"


def next_axis(axis: ChartAxis, names: Sequence[str]) -> ChartAxis:
    """The x axis after this one of those that a run with these metrics has."""
    axes = [each for each in CHART_AXES if each == axis or each != "dollars" or SPENT in names]
    return axes[(axes.index(axis) + 1) % len(axes)]


def zoomed(chart: Chart, factor: float, around: float | None) -> ChartRequest:
    """The request for a window that is `factor` times as wide, with `around` where it is."""
    whole = chart.last - chart.first
    width = min(whole, max(whole * _NARROWEST, (chart.high - chart.low) * factor))
    x = (chart.low + chart.high) / 2 if around is None else around
    share = (x - chart.low) / (chart.high - chart.low) if chart.high > chart.low else 0.5
    return _windowed(chart, x - share * width, width)


def panned(chart: Chart, share: float) -> ChartRequest:
    """The request for a window moved by this share of its width."""
    width = chart.high - chart.low
    return _windowed(chart, chart.low + share * width, width)


def _windowed(chart: Chart, low: float, width: float) -> ChartRequest:
    if width >= chart.last - chart.first:
        return replace(chart.request, window=None)
    low = min(max(chart.first, low), chart.last - width)
    return replace(chart.request, window=(low, low + width))


def smoothed(points: Points, weight: float) -> Points:
    """The exponential moving average, debiased as W&B's: the first values are not drawn to zero.

    Intervals are smoothed alike.
    """
    if not weight:
        return points
    means, norm = [0.0, 0.0, 0.0], 0.0
    result = []
    for point in points:
        norm = norm * weight + (1 - weight)
        means = [
            mean * weight + (1 - weight) * value
            for mean, value in zip(means, point[1:], strict=True)
        ]
        result.append(Point(point.x, *(mean / norm for mean in means)))
    return tuple(result)


def thinned(points: Points, low: float, high: float, columns: int) -> Points:
    """At most one point a column of the window, each the mean with the range of its points.

    The neighbours of the window are kept, so that lines lead out of it.
    """
    first = max(0, bisect_left(points, low, key=lambda point: point.x) - 1)
    last = bisect_right(points, high, key=lambda point: point.x) + 1
    inside = points[first:last]
    if len(inside) <= columns or high <= low:
        return inside
    size = (high - low) / columns
    result = []
    for _, group in groupby(inside, key=lambda point: math.floor((point.x - low) / size)):
        each = list(group)
        result.append(
            Point(
                sum(point.x for point in each) / len(each),
                sum(point.y for point in each) / len(each),
                min(point.low for point in each),
                max(point.high for point in each),
            )
        )
    return tuple(result)


def panel(metric: str, lines: Iterable[Line], request: ChartRequest) -> Panel:
    """Lines of one metric with the y axis that fits them."""
    lines = tuple(lines)
    window = request.window or (-math.inf, math.inf)
    points = [
        point for line in lines for point in line.drawn if window[0] <= point.x <= window[1]
    ] or [point for line in lines for point in line.drawn]
    values = [point.y for point in points]
    log = request.log and any(value >= _SMALLEST for value in values)
    usable = [value for value in values if value >= _SMALLEST] if log else values
    scale = [math.log10(value) for value in usable] if log else usable
    bottom, top = fences(scale) if request.clip else (-math.inf, math.inf)
    kept = [value for value in scale if bottom <= value <= top]
    banded = request.band and len(lines) <= MOST_BANDS
    if banded and kept:
        held = [
            point
            for point in points
            if (point.y >= _SMALLEST or not log)
            and bottom <= (math.log10(point.y) if log else point.y) <= top
        ]
        both = [end for point in held for end in (point.low, point.high)]
        ends = [end for end in both if end >= _SMALLEST] if log else both
        scaled = [math.log10(end) for end in ends] if log else ends
        # An interval is in sight; the range of a column that has an outlier is not.
        lowest, highest = fences(scaled) if request.clip else (-math.inf, math.inf)
        kept += [end for end in scaled if lowest <= end <= highest]
    low, high = min(kept, default=0.0), max(kept, default=1.0)
    if not log and max(map(abs, (low, high))) < _ROUNDING:
        # Rounding errors would look like movement.
        low, high = 0.0, _ROUNDING
    low, high = _with_margin(low, high, log=log)
    above = sum(value > high for value in scale)
    below = sum(value < low for value in scale) + len(values) - len(usable)
    if log:
        low, high = 10**low, 10**high
    return Panel(metric, lines, low, high, log, above, below)


MOST_BANDS = 6
"""Lines of a panel up to which each has its band."""


def _with_margin(low: float, high: float, *, log: bool) -> tuple[float, float]:
    if low == high:
        margin = 0.5 if log else abs(low) * 0.5 or 0.5
        return low - margin, high + margin
    if log:
        return low, high
    # From zero if that is not far away.
    if 0 < low < high * 0.6:
        low = 0.0
    if 0 > high > low * 0.6:
        high = 0.0
    return low, high


class ChartReader:
    """Reads charts from journals, and keeps series until their journals change. For a thread."""

    def __init__(self) -> None:
        self._series: dict[tuple[RunDirectory, str, ChartAxis], tuple[Hashable, Points]] = {}
        self._names: dict[RunDirectory, tuple[Hashable, tuple[str, ...]]] = {}

    def stands(self, runs: Sequence[RunDirectory]) -> Hashable:
        """Another value than before where a chart of these runs may have changed."""
        return tuple((run, journal_stands(run)) for run in runs)

    def read(
        self,
        runs: Sequence[RunDirectory],
        request: ChartRequest,
        columns: int,
        until: int | None = None,
    ) -> Chart:
        """The chart of these runs, the first one's names of metrics with it.

        Args:
            columns: points that a line is drawn with at most.
            until: the first run's last event that counts, by its number; None: all do.
        """
        troubles: list[str] = []
        names, about = self._names_of(runs[0], troubles), ""
        steps: tuple[int, ...] = ()
        if request.axis == "position":
            steps, about, profiles = self._profiles(runs, request, troubles, until)
            entropy = profiles and all(profile.is_entropy for _, profile in profiles)
            metrics: tuple[str, ...] = (ENTROPY_PROFILE if entropy else PROFILE,)
            found = [(run, metrics[0], profile.points) for run, profile in profiles]
        else:
            metrics = request.metrics
            found = [
                (
                    run.name,
                    metric,
                    self._points(run, metric, request.axis, troubles, None if number else until),
                )
                for metric in metrics
                for number, run in enumerate(runs)
            ]
        xs = [point.x for _, _, points in found for point in (*points[:1], *points[-1:])]
        first, last = min(xs, default=0.0), max(xs, default=1.0)
        if first > 0 and request.axis != "position":
            first = 0.0
        last = max(last, first + 1.0)
        low, high = request.window or (first, last)
        lines = []
        for run, metric, points in found:
            shown = smoothed(points, request.smoothing)
            lines.append(Line(run, metric, points, shown, thinned(shown, low, high, columns)))
        panels = tuple(
            panel(metric, (line for line in lines if line.metric == metric), request)
            for metric in metrics
        )
        return Chart(
            request,
            panels,
            low,
            high,
            first,
            last,
            names,
            steps,
            about,
            tuple(dict.fromkeys(troubles)),
        )

    def _names_of(self, run: RunDirectory, troubles: list[str]) -> tuple[str, ...]:
        stands = journal_stands(run)
        if run not in self._names or self._names[run][0] != stands:
            try:
                self._names[run] = stands, metric_names(run)
            except JournalError as error:
                troubles.append(str(error))
                return ()
        return self._names[run][1]

    def _points(
        self,
        run: RunDirectory,
        metric: str,
        axis: XAxis,
        troubles: list[str],
        until: int | None,
    ) -> Points:
        key, stands = (run, metric, axis), (journal_stands(run), until)
        if key not in self._series or self._series[key][0] != stands:
            try:
                self._series[key] = stands, read_series(run, metric, axis, until)
            except JournalError as error:
                troubles.append(str(error))
                return ()
        return self._series[key][1]

    def _profiles(
        self,
        runs: Sequence[RunDirectory],
        request: ChartRequest,
        troubles: list[str],
        until: int | None,
    ) -> tuple[tuple[int, ...], str, list[tuple[str, Profile]]]:
        """The steps of the first run, what its profile is of, and every run's profile."""
        found: list[tuple[str, Profile]] = []
        known: tuple[int, ...] = ()
        about = "no step has finished yet"
        for number, run in enumerate(runs):
            try:
                steps = profile_steps(run, None if number else until)
                if not number:
                    known = steps
                step = request.step if request.step is not None else max(steps, default=None)
                if step is None or step not in steps:
                    continue
                profile = read_profile(run, step)
            except JournalError as error:
                troubles.append(str(error))
                continue
            found.append((run.name, profile))
            if not number:
                about = _about(profile)
        return known, about, found


def _about(profile: Profile) -> str:
    """`step 9, unbiased estimate from 312 answers at temperature 1 · mean with its …`."""
    first = "the first " if profile.cut else ""
    temperatures = " and ".join(f"{each:g}" for each in profile.temperatures)
    at = f" at temperature {temperatures}" if temperatures else ""
    estimate = "unbiased estimate from " if profile.is_entropy else ""
    return (
        f"step {profile.step}, {estimate}{first}{profile.answers:,} answers{at}"
        " · mean with its 95% interval"
    )
