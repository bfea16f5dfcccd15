"""Small charts out of characters: braille curves, eighth-block bars. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.style import Style

from tbtui.ui.draw import Span

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Series:
    """Points with x in any unit and y from 0 to 1."""

    points: tuple[tuple[float, float], ...]
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
        # Whoever is furthest from its share gives or takes a cell.
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
    low: float
    label: str
    count: int


def reward_bins(rewards: Sequence[float], limit: int) -> list[Bin]:
    """One bin a distinct reward where those are few, else `limit` equal bins from 0 to 1."""
    distinct = sorted({round(reward, 2) for reward in rewards} | {0.0, 1.0})
    if len(distinct) <= max(2, limit):
        return [
            Bin(value, f"{value:.1f}", sum(1 for r in rewards if abs(r - value) < 0.005))
            for value in distinct
        ]
    bins = max(2, min(10, limit))
    counts = [0] * bins
    for reward in rewards:
        counts[min(bins - 1, max(0, int(reward * bins)))] += 1
    return [Bin(i / bins, f"{i / bins:.1f}", count) for i, count in enumerate(counts)]
