"""A chart as a file: SVG to look at, CSV to compute with."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args
from xml.sax.saxutils import escape

from tbtui.errors import UserError
from tbtui.journal.metrics import Point
from tbtui.terminal import visible
from tbtui.view.charts import MOST_BANDS, Chart, Line, Panel, x_in_words
from tbtui.view.exports import write_export

ChartFormat = Literal["svg", "csv"]
CHART_FORMATS: tuple[ChartFormat, ...] = get_args(ChartFormat)

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 960, 300, 80, 24, 56, 48
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito's, which people tell apart whatever colours they see."""


_DOTTED = 40
"""Points of a line up to which each is marked."""


def chart_file_name(run: str, metrics: tuple[str, ...], format: ChartFormat) -> str:
    """What to call a chart's file: nothing in it that a file system or shell minds."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join((run, *metrics))).strip("-.") + f".{format}"


def chart_format(path: Path) -> ChartFormat:
    """The format that a file's ending asks for. Raises `UserError`."""
    for format in CHART_FORMATS:
        if path.suffix.lower() == f".{format}":
            return format
    raise UserError(f"{path}: give a name that ends in .svg or .csv")


def write_chart(chart: Chart, path: Path, *, overwrite: bool = False) -> None:
    """Write a chart to a file, as its ending says, whole or not at all. Raises `UserError`."""
    write_export(path, chart_text(chart, chart_format(path)), overwrite=overwrite)


def chart_text(chart: Chart, format: ChartFormat) -> str:
    """The file's text."""
    return svg(chart) if format == "svg" else comma_separated(chart)


def comma_separated(chart: Chart) -> str:
    """A line for each recorded value of the window: run, metric, x, value, and its interval.

    Values are as recorded, with all their digits: smoothing is the reader's.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("run", "metric", chart.x_label.replace(" ", "_"), "value", "low", "high"))
    for panel in chart.panels:
        for line in panel.lines:
            for point in line.recorded:
                if chart.low <= point.x <= chart.high:
                    names = map(_inert, (line.run, line.metric))
                    rows.writerow((*names, *(_plain(value) for value in point)))
    return out.getvalue()


def _inert(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def svg(chart: Chart) -> str:
    """Panels below each other on one x axis, with a legend and what was done to the values."""
    height = _TOP + len(chart.panels) * (_PANEL + _GAP) + 8
    body = "\n".join(_elements(chart, height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _elements(chart: Chart, height: int) -> Iterator[str]:
    yield from _legend(chart)
    for number, panel in enumerate(chart.panels):
        yield from _panel(chart, panel, _TOP + number * (_PANEL + _GAP))
    yield _text(_WIDTH - _RIGHT, height - 6, chart.x_label, "end")


def _legend(chart: Chart) -> Iterator[str]:
    runs = list(dict.fromkeys(line.run for panel in chart.panels for line in panel.lines))
    x = _LEFT
    for number, run in enumerate(runs):
        if x > _WIDTH - 160:
            yield _text(x, 20, f"and {len(runs) - number} more runs")
            break
        yield f'<rect x="{x}" y="14" width="16" height="3" fill="{_colour(number)}"/>'
        yield _text(x + 22, 20, run)
        x += 36 + 7 * len(run)
    if words := settings_in_words(chart):
        yield _text(_LEFT, 38, words, colour="#666666")


def settings_in_words(chart: Chart) -> str:
    """What was done to the values: `smoothing 0.6 · log y · band: ...`; a profile's step, too."""
    request = chart.request
    parts = [chart.about] if chart.about else []
    if request.smoothing:
        parts.append(f"smoothing {request.smoothing:g}")
    if request.log:
        parts.append("log y")
    if request.band and not chart.about:
        parts.append("band: 95% interval or range")
    if not request.clip:
        parts.append("outliers shown")
    return " · ".join(parts)


def _panel(chart: Chart, panel: Panel, top: int) -> Iterator[str]:
    width, bottom = _WIDTH - _LEFT - _RIGHT, top + _PANEL

    def across(x: float) -> float:
        return _LEFT + (x - chart.low) / (chart.high - chart.low) * width

    def down(y: float) -> float:
        if panel.log:
            share = math.log10(max(y, panel.low / 1e3)) - math.log10(panel.low)
            share /= (math.log10(panel.high) - math.log10(panel.low)) or 1.0
        else:
            share = (y - panel.low) / ((panel.high - panel.low) or 1.0)
        return bottom - min(1.0, max(0.0, share)) * _PANEL

    clipped = f" · outliers clipped: {panel.clipped}" if panel.clipped else ""
    yield _text(_LEFT, top - 6, f"{panel.metric}{clipped}")
    for n in range(5):
        share = n / 4
        y = panel.low + share * (panel.high - panel.low)
        if panel.log:
            y = panel.low * (panel.high / panel.low) ** share
        x = chart.low + share * (chart.high - chart.low)
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(y):.1f}" y2="{down(y):.1f}"'
            ' stroke="#dddddd"/>'
        )
        yield _text(_LEFT - 6, down(y) + 4, f"{y:.3g}", "end")
        yield _text(across(x), bottom + 16, x_in_words(chart.request.axis, x), "middle")
    clip = f"panel-{top}"
    yield (
        f'<clipPath id="{clip}"><rect x="{_LEFT}" y="{top}" width="{width}" height="{_PANEL}"/>'
        f'</clipPath><g clip-path="url(#{clip})">'
    )
    for number, line in enumerate(panel.lines):
        if chart.request.band and len(panel.lines) <= MOST_BANDS:
            yield from _band(line, across, down, _colour(number))
        yield from _line(line, across, down, _colour(number))
    yield "</g>"


def _band(
    line: Line, across: Callable[[float], float], down: Callable[[float], float], colour: str
) -> Iterator[str]:
    if all(point.low == point.high for point in line.drawn):
        return
    ends = [(across(p.x), down(p.high)) for p in line.drawn]
    ends += [(across(p.x), down(p.low)) for p in reversed(line.drawn)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
    yield f'<polygon points="{points}" fill="{colour}" opacity="0.18"/>'


def _line(
    line: Line, across: Callable[[float], float], down: Callable[[float], float], colour: str
) -> Iterator[str]:
    def place(point: Point) -> str:
        return f"{across(point.x):.1f},{down(point.y):.1f}"

    placed = [place(point) for point in line.drawn]
    points = " ".join(placed)
    yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    if len(placed) <= _DOTTED:
        for each in placed:
            x, y = each.split(",")
            yield f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(visible(words))}</text>"
    )


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
