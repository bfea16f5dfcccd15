"""Makes outside text fit for the screen: no markup, no escapes, nothing invisible; and cuts it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from tbtui.terminal import visible as visible
from tbtui.terminal import visible_lines as visible_lines


def first_line(text: str) -> str:
    """Return a paste's first line, without what can't be typed."""
    line = re.split(r"[\r\n]", text, maxsplit=1)[0].replace("\t", " ")
    return "".join(char for char in line if char.isprintable())


def clip(text: str, width: int) -> str:
    """`text` in at most `width` cells, with `…` where it is cut: after a word, where that leaves
    three quarters of the room used."""
    if width <= 0:
        return ""
    if len(text) * 2 <= width or cell_len(text) <= width:
        return text
    cut = take(text, width - 1)
    space = cut.rfind(" ")
    if text[len(cut)] != " " and space * 4 >= width * 3:
        cut = cut[:space]
    return cut + "…"


class Name(str):
    """The name of a trial, a task or a data set: a row that has no room for it cuts its middle."""


_NUMBERED = re.compile(r"[-_. ]?\d*(/[^/]*)?$")


def clip_name(name: str, width: int) -> str:
    """`name` in at most `width` cells, `nested-02/1` as `nes…-02/1`.

    Names differ at their ends: a number and a place in the group are kept whole while there is
    room for them.
    """
    if cell_len(name) <= width:
        return name
    room = width - 1
    if room < 2:
        return clip(name, width)
    numbered = _NUMBERED.search(name)
    _, slash, member = name.rpartition("/")
    ends = (numbered[0] if numbered else "", slash and slash + member)
    fitting = (cells for end in ends if (cells := cell_len(end)) < room)
    end = max(-(-room * 3 // 5), next(fitting, 0))
    return f"{take(name, room - end)}…{_take_last(name, end)}"


def _take_last(text: str, width: int) -> str:
    """Return as many trailing characters as fit in `width` cells."""
    return take(text[::-1], width)[::-1]


def take(text: str, width: int) -> str:
    """Return as many leading characters as fit in `width` cells."""
    if text.isascii():
        return text[: max(0, width)]
    used = 0
    for index, char in enumerate(text[: max(0, width) * 4 + 16]):
        used += cell_len(char)
        if used > width:
            return text[:index]
    return text[: max(0, width) * 4 + 16]


def wrap(text: str, width: int) -> Iterator[str]:
    """Rows of at most `width` cells; breaks after a space where there is one near the end."""
    width = max(1, width)
    while text:
        row = take(text, width)
        if not row:
            # One character wider than the whole row.
            row = text[0]
        if len(row) < len(text):
            space = row.rfind(" ")
            if space > len(row) // 2:
                row = row[: space + 1]
        yield row.rstrip(" ")
        text = text[len(row) :]


def number(value: float) -> str:
    """Two significant digits, no leading zero: `.031`, `.61`, `1.0`, `12`, `1,234`."""
    if -0.0005 < value <= 0:
        value = 0.0  # a sign alone says nothing
    if abs(value) >= 10:
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.1f}"
    if abs(value) >= 0.095 or value == 0:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.3f}".replace("0.", ".", 1)


def short_count(value: float) -> str:
    """`950`, `12k`, `1.2M`, `34M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return (
                f"{value / size:.1f}{unit}" if value < 10 * size else f"{value / size:,.0f}{unit}"
            )
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A pass rate in three cells: `.61`, `1.0`, `  –`."""
    if value is None:
        return "  –"
    return "1.0" if value >= 0.995 else f"{value:.2f}"[1:]


def clock_time(seconds: float, *, tenths: bool = False) -> str:
    """`0:41`, `1:02:03`; with tenths `0:00.4`."""
    whole = max(0, int(seconds))
    if tenths:
        return f"{clock_time(whole)}.{int(max(0.0, seconds) * 10) % 10}"
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"


def elapsed(seconds: float) -> str:
    """How long a trial has taken: `0.8s` below ten seconds, else `0:41`."""
    seconds = max(0.0, seconds)
    return f"{int(seconds * 10) / 10:.1f}s" if seconds < 10 else clock_time(seconds)


_EIGHTHS = "▁▂▃▄▅▆▇█"


def level(value: float) -> str:
    """A block character whose height shows a value from 0 to 1."""
    return _EIGHTHS[min(7, max(0, int(value * 7.999)))]


def sparkline(values: Sequence[float], width: int) -> str:
    """The latest values, averaged into at most `width` blocks, right-aligned."""
    if not values:
        return " " * width
    size = max(1, -(-len(values) // width))
    # Buckets end at the newest value, so that the last block is always a full one.
    buckets = [values[max(0, end - size) : end] for end in range(len(values), 0, -size)][::-1]
    return "".join(level(sum(b) / len(b)) for b in buckets[-width:]).rjust(width)
