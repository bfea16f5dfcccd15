"""Draws small charts out of characters: braille curves, eighth-block bars. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.style import Style

from tbtui.ui.drawing.rows import Span

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SMALL = 0.001
"""An axis that stays below has powers of ten on it."""


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Points with x in any unit and y from 0 to 1."""

    points: Points
    style: Style
    marks: bool = False
    """Mark the points themselves."""
    band: tuple[tuple[float, float, float], ...] = ()
    """x, and the y between which a light pattern lies: an interval, or a range."""
    band_style: Style | None = None


@dataclass(frozen=True, slots=True)
class Raster:
    """Lines drawn into cells: a cursor is laid over them at a cost that no line adds to."""

    rows: tuple[tuple[Span, ...], ...]
    taken: tuple[tuple[bool, ...], ...]
    """Cells with a line or a mark, which hide the cursor."""
    first_x: float
    last_x: float

    def with_cursor(self, cursor: tuple[float, Style] | None) -> list[list[Span]]:
        """The rows, with a vertical line at `cursor`, its x and style."""
        rows = [list(spans) for spans in self.rows]
        if cursor is None or not self.taken:
            return rows
        last = len(self.taken[0]) * 2 - 1
        at = _column(cursor[0], self.first_x, self.last_x, last) // 2
        if not 0 <= at < len(self.taken[0]):
            return rows
        return [
            spans if taken[at] else _replaced(spans, at, ("│", cursor[1]))
            for spans, taken in zip(rows, self.taken, strict=True)
        ]


def _column(x: float, first_x: float, last_x: float, last: int) -> int:
    size = last_x - first_x
    return round((x - first_x) / size * last) if size else 0


def _replaced(spans: Sequence[Span], at: int, cell: Span) -> list[Span]:
    """Spans of one cell a character, with another cell at `at`."""
    result: list[Span] = []
    start = 0
    for text, style in spans:
        place = at - start
        if 0 <= place < len(text):
            result += [(text[:place], style), cell, (text[place + 1 :], style)]
        else:
            result.append((text, style))
        start += len(text)
    return _merge([span for span in result if span[0]])


def curve(
    series: Sequence[Series],
    width: int,
    height: int,
    last_x: float,
    first_x: float = 0.0,
    cursor: tuple[float, Style] | None = None,
) -> list[list[Span]]:
    """`raster` with a cursor: x and style of a vertical line."""
    return raster(series, width, height, last_x, first_x).with_cursor(cursor)


def raster(
    series: Sequence[Series], width: int, height: int, last_x: float, first_x: float = 0.0
) -> Raster:
    """Lines through the points, `width` x `height` cells of 2 x 4 dots; later series on top.

    What is outside of the window from `first_x` to `last_x` is left out, but for lines that lead
    there.
    """
    bits = [[0] * width for _ in range(height)]
    styles: list[list[Style | None]] = [[None] * width for _ in range(height)]
    marks: dict[tuple[int, int], Style] = {}
    across, down = width * 2 - 1, height * 4 - 1

    def place(x: float, y: float) -> tuple[int, int]:
        return _column(x, first_x, last_x, across), round((1 - min(1.0, max(0.0, y))) * down)

    for line in series:
        _shade(line, bits, styles, place)
    drawn = [[0] * width for _ in range(height)]
    for line in series:
        dots = [place(x, y) for x, y in line.points]
        for (x0, y0), (x1, y1) in pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            # A line that begins far outside is only followed where it is in sight.
            first, last = 0, steps
            if steps > 4 * (across + down) and x1 > x0:
                first = max(0, -x0 * steps // (x1 - x0))
                last = min(steps, (across - x0) * steps // (x1 - x0) + 1)
            for step in range(first, last + 1):
                x, y = x0 + (x1 - x0) * step // steps, y0 + (y1 - y0) * step // steps
                if 0 <= x <= across:
                    drawn[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
                    styles[y // 4][x // 2] = line.style
        for x, y in dots:
            if not 0 <= x <= across:
                continue
            if line.marks:
                marks[y // 4, x // 2] = line.style
            elif len(dots) == 1:
                drawn[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
                styles[y // 4][x // 2] = line.style
    rows = []
    for r in range(height):
        spans: list[Span] = []
        for c in range(width):
            # Where there is a line its band would make it thick.
            dots_here = drawn[r][c] or bits[r][c]
            if mark := marks.get((r, c)):
                spans.append(("•", mark))
            else:
                spans.append((chr(0x2800 + dots_here) if dots_here else " ", styles[r][c]))
        rows.append(tuple(_merge(spans)))
    taken = tuple(
        tuple(bool(drawn[r][c]) or (r, c) in marks for c in range(width)) for r in range(height)
    )
    return Raster(tuple(rows), taken, first_x, last_x)


def _shade(
    line: Series,
    bits: list[list[int]],
    styles: list[list[Style | None]],
    place: Callable[[float, float], tuple[int, int]],
) -> None:
    """Draw a band: every other dot of every other column, so that lines stand out."""
    last = len(bits[0]) * 2 - 1
    ends = [(*place(x, low), place(x, high)[1]) for x, low, high in line.band]
    if len(ends) == 1:
        ends *= 2
    for (x0, low0, high0), (x1, low1, high1) in pairwise(ends):
        for x in range(max(0, x0), min(last, x1) + 1):
            if x % 2 and len(line.band) > 1:
                continue
            share = (x - x0) / (x1 - x0) if x1 > x0 else 0.0
            top = round(high0 + (high1 - high0) * share)
            for y in range(top, round(low0 + (low1 - low0) * share) + 1):
                if y % 2 == 0:
                    bits[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
                    styles[y // 4][x // 2] = line.band_style or line.style


def _merge(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for text, style in spans:
        if merged and merged[-1][1] == style:
            merged[-1] = (merged[-1][0] + text, style)
        else:
            merged.append((text, style))
    return merged


def bar(share: float, width: int) -> str:
    """A horizontal bar of `share` (0 to 1) of `width` cells, to an eighth of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def stacked[Name](values: Mapping[Name, float], width: int) -> list[tuple[Name, int]]:
    """How many of `width` cells each value gets: by its share, at least one if it is not zero.

    The cells of all together are `width`, as long as there are no more values than cells.
    """
    present = {name: value for name, value in values.items() if value > 0}
    total = sum(present.values())
    if not present or width < 1:
        return []
    cells = {name: max(1, int(value / total * width)) for name, value in present.items()}
    while (surplus := sum(cells.values()) - width) != 0:
        # The one furthest from its share gives or takes a cell.
        error = {name: cells[name] - present[name] / total * width for name in cells}
        if surplus > 0:
            shrinkable = [name for name in cells if cells[name] > 1]
            if not shrinkable:
                break
            cells[max(shrinkable, key=lambda name: error[name])] -= 1
        else:
            cells[min(cells, key=lambda name: error[name])] += 1
    return list(cells.items())


@dataclass(frozen=True, slots=True)
class Bin:
    """Rewards from `low` up to but not including `high`."""

    low: float
    high: float
    value: float
    """What it is coloured for."""
    label: str
    count: int


def reward_bins(rewards: Sequence[float], limit: int) -> list[Bin]:
    """One bin a distinct reward where those are few, else `limit` equal bins from 0 to 1, or as
    far as there are rewards beyond."""
    distinct = sorted({round(reward, 2) for reward in rewards} | {0.0, 1.0})
    if len(distinct) <= max(2, limit):
        decimals = 1 if all(round(value * 10) == value * 10 for value in distinct) else 2
        between = [(a + b) / 2 for a, b in pairwise(distinct)]
        edges = [-math.inf, *between, math.inf]
        return [
            _bin(low, high, value, f"{value:.{decimals}f}", rewards)
            for value, (low, high) in zip(distinct, pairwise(edges), strict=True)
        ]
    bins = max(2, min(10, limit))
    start, end = distinct[0], distinct[-1]
    begins = [start + (end - start) * i / bins for i in range(bins)]
    edges = [-math.inf, *begins[1:], math.inf]
    return [
        _bin(low, high, begin, f"{begin:.1f}", rewards)
        for begin, (low, high) in zip(begins, pairwise(edges), strict=True)
    ]


def _bin(low: float, high: float, value: float, label: str, rewards: Sequence[float]) -> Bin:
    return Bin(low, high, value, label, sum(1 for reward in rewards if low <= reward < high))


def scaled(points: Sequence[tuple[float, float]], low: float, high: float) -> Points:
    """Points with y in any unit as points with y from 0 (`low`) to 1 (`high`)."""
    size = high - low
    return tuple((x, (y - low) / size if size else 0.5) for x, y in points)


def value_range(values: Iterable[float]) -> tuple[float, float]:
    """Return the ends of an axis for these values; from zero if they are not far from it."""
    known = list(values)
    low, high = min(known, default=0.0), max(known, default=1.0)
    if low > 0 and low < high * 0.6:
        low = 0.0
    if high < 0 and high > low * 0.6:
        high = 0.0
    if low == high:
        margin = abs(low) * 0.5 or 0.5
        low, high = (0.0, low + margin) if low >= 0 else (low - margin, 0.0)
    return low, high


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round values between the ends of an axis, those included where round."""
    size = high - low
    if size <= 0 or most < 1:
        return [low]
    power = 10 ** math.floor(math.log10(size / most))
    fitting = (m * power for m in (1, 2, 5, 10, 20) if size // (m * power) < most)
    step = next(fitting, 50 * power)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Round values of one axis, with as many digits as tell them apart: `.001 .002`, `2e-14`."""
    apart = min((b - a for a, b in pairwise(values)), default=abs(values[0]) if values else 0.0)
    power = math.floor(math.log10(apart) + 1e-9) if apart > 0 else 0
    largest = max(map(abs, values), default=0.0)
    if 0 < largest < _SMALL:
        digits = math.floor(math.log10(largest) + 1e-9) - power
        return [f"{value:.{digits}e}" if value else "0" for value in values]
    decimals = max(0, -power)
    return [_decimal(value, decimals) if value else "0" for value in values]


def _decimal(value: float, decimals: int) -> str:
    """`.05`, `-.5`, `1.0`: without the zero before the point."""
    text = f"{value:,.{decimals}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


@dataclass(frozen=True, slots=True)
class Axis:
    """The ends of an axis."""

    low: float
    high: float
    log: bool = False
    """In powers of ten; both ends are above zero."""
    label: Callable[[float], str] | None = None
    """Words for a value; None: numbers. An x axis has whole ones only."""

    def share(self, value: float) -> float:
        """Where on the axis a value is, from 0 to 1; outside of that beyond its ends."""
        if not self.log:
            size = self.high - self.low
            return (value - self.low) / size if size else 0.5
        if value <= 0:
            return -1.0
        size = math.log10(self.high) - math.log10(self.low)
        return (math.log10(value) - math.log10(self.low)) / size if size else 0.5

    def marks(self, most: int) -> list[tuple[float, str]]:
        """At most so many round values, each with its label."""
        if self.log:
            return _powers(self.low, self.high, most)
        values = ticks(self.low, self.high, most)
        if self.label is not None:
            return [(value, self.label(value)) for value in values]
        return list(zip(values, tick_labels(values), strict=True))


def _powers(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Powers of ten; over less than one of them, round values."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    apart = max(1, -(-(last - first + 1) // max(1, most)))
    powers = [10.0**power for power in range(first, last + 1, apart)]
    if len(powers) < 2:
        values = [value for value in ticks(low, high, most) if value > 0]
        return list(zip(values, tick_labels(values), strict=True))
    return [(each, f"{each:g}" if 1e-3 <= each < 1e5 else f"{each:.0e}") for each in powers]


def axes(
    series: Sequence[Series],
    width: int,
    height: int,
    last_x: float,
    y_range: tuple[float, float],
    style: Style,
) -> list[list[Span]]:
    """`curve` with a y axis of round numbers on the left and one of whole steps below.

    `series` have y in the unit of `y_range`. Two of the `height` rows are the x axis.
    """
    return plot(series, width, height, Axis(0.0, last_x), Axis(*y_range), style).rows()


@dataclass(frozen=True, slots=True)
class Plot:
    """Drawn lines with their axes."""

    left: tuple[tuple[Span, ...], ...]
    """The y axis, one entry a row."""
    lines: Raster
    below: tuple[Span, ...]
    """Rows of the x axis."""

    def rows(self, cursor: tuple[float, Style] | None = None) -> list[list[Span]]:
        """All rows, with a vertical line at `cursor`, its x and style."""
        drawn = self.lines.with_cursor(cursor)
        framed = [[*left, *spans] for left, spans in zip(self.left, drawn, strict=True)]
        return framed + [[span] for span in self.below]


def plot(
    series: Sequence[Series],
    width: int,
    height: int,
    x_axis: Axis,
    y_axis: Axis,
    style: Style,
    *,
    margin: int = 0,
    below: bool = True,
) -> Plot:
    """`raster` with axes; `series` have x and y in the units of these.

    Args:
        margin: cells for the labels on the left at least, so that charts lie exactly below each
            other.
        below: two of the `height` rows are the x axis.
    """
    rows = max(1, height - 2 * below)
    marks = {
        round((1 - y_axis.share(value)) * (rows * 4 - 1)) // 4: label
        for value, label in y_axis.marks(max(2, rows // 3))
    }
    margin = max(margin, *map(len, marks.values()), 0) + 1
    across = max(1, width - margin - 2)
    lines = raster(
        [
            replace(
                line,
                points=tuple((x, y_axis.share(y)) for x, y in line.points),
                band=tuple((x, y_axis.share(a), y_axis.share(b)) for x, a, b in line.band),
            )
            for line in series
        ],
        across,
        rows,
        x_axis.high,
        x_axis.low,
    )
    left = tuple(
        ((f"{marks.get(y, ''):>{margin}}", style), ("┤" if y in marks else "│", style))
        for y in range(rows)
    )
    if not below:
        return Plot(left, lines, ())
    rule, text = ["─"] * across, [" "] * (across + 1)
    for value, words in x_axis.marks(max(2, across // 8)):
        if value != round(value):
            continue
        if x_axis.label is None:
            words = f"{value:.0f}"
        x = round(x_axis.share(value) * (across - 1))
        start = min(max(0, x - len(words) // 2), across + 1 - len(words))
        if x < across and all(char == " " for char in text[max(0, start - 1) : start + len(words)]):
            rule[x] = "┬"
            text[start : start + len(words)] = words
    return Plot(
        left,
        lines,
        (
            (" " * margin + "└" + "".join(rule), style),
            (" " * (margin + 1) + "".join(text), style),
        ),
    )
