"""Draws small charts out of characters: braille curves, eighth-block bars. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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


def curve(
    series: Sequence[Series], width: int, height: int, last_x: float
) -> list[list[tuple[str, Style | None]]]:
    """Lines through the points, `width` x `height` cells of 2 x 4 dots; later series on top."""
    bits = [[0] * width for _ in range(height)]
    styles: list[list[Style | None]] = [[None] * width for _ in range(height)]
    marks: dict[tuple[int, int], Style] = {}
    across, down = width * 2 - 1, height * 4 - 1

    def place(x: float, y: float) -> tuple[int, int]:
        return (
            round(min(1.0, max(0.0, x / last_x if last_x else 0.0)) * across),
            round((1 - min(1.0, max(0.0, y))) * down),
        )

    for line in series:
        dots = [place(x, y) for x, y in line.points]
        for (x0, y0), (x1, y1) in pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                x, y = x0 + (x1 - x0) * step // steps, y0 + (y1 - y0) * step // steps
                bits[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
                styles[y // 4][x // 2] = line.style
        for x, y in dots:
            if line.marks:
                marks[y // 4, x // 2] = line.style
            elif len(dots) == 1:
                bits[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
                styles[y // 4][x // 2] = line.style
    rows = []
    for r in range(height):
        spans: list[tuple[str, Style | None]] = []
        for c in range(width):
            mark = marks.get((r, c))
            char = "•" if mark else chr(0x2800 + bits[r][c]) if bits[r][c] else " "
            spans.append((char, mark or styles[r][c]))
        rows.append(_merge(spans))
    return rows


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
    """One bin a distinct reward where those are few, else `limit` equal bins from 0 to 1."""
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
    edges = [-math.inf, *(i / bins for i in range(1, bins)), math.inf]
    return [
        _bin(low, high, i / bins, f"{i / bins:.1f}", rewards)
        for i, (low, high) in enumerate(pairwise(edges))
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
    low, high = y_range
    rows = height - 2
    values = ticks(low, high, max(2, rows // 3))
    marks = {
        round((1 - (value - low) / (high - low)) * (rows * 4 - 1)) // 4: label
        for value, label in zip(values, tick_labels(values), strict=True)
    }
    margin = max(map(len, marks.values()), default=0) + 1
    across = max(1, width - margin - 2)
    lines = curve(
        [replace(line, points=scaled(line.points, low, high)) for line in series],
        across,
        rows,
        last_x,
    )
    framed: list[list[Span]] = [
        [
            (f"{marks.get(y, ''):>{margin}}", style),
            ("┤" if y in marks else "│", style),
            *spans,
        ]
        for y, spans in enumerate(lines)
    ]
    rule, text = ["─"] * across, [" "] * (across + 1)
    for step in ticks(0, last_x, max(2, across // 8)):
        if step != round(step):
            continue
        x = round(step / last_x * (across - 1))
        words = f"{step:.0f}"
        start = min(max(0, x - len(words) // 2), across + 1 - len(words))
        if x < across and all(char == " " for char in text[max(0, start - 1) : start + len(words)]):
            rule[x] = "┬"
            text[start : start + len(words)] = words
    framed.append([(" " * margin + "└" + "".join(rule), style)])
    framed.append([(" " * (margin + 1) + "".join(text), style)])
    return framed
