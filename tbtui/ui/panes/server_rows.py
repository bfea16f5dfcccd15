"""The policy's server: its state, its requests, its cache and its latencies."""

from __future__ import annotations

from collections.abc import Iterator

from textual.strip import Strip

from tbtui.server_status import RequestStatus, ServerStatus
from tbtui.ui.drawing.charts import bar
from tbtui.ui.drawing.rows import Span, pair, reason, row, split_row
from tbtui.ui.drawing.text import clock_time, number
from tbtui.ui.panes.pane import Frame
from tbtui.ui.theme.glyphs import server_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.server import NEARLY_FULL, PolicyView
from tbtui.view.waiting import duration

TABLE_WIDTH = 60
"""From here on, requests are a table."""
_SHORT_KINDS = {"forward_backward": "fwd_bwd"}
_NAMES_WIDTH = 30
"""Below this, long names of requests are shortened."""
_TITLE_WIDTH = 36
_WIDEST_BAR = 24
_LATENCY_NAMES = {
    "first_token": ("time to first token", "TTFT"),
    "inter_token": ("inter-token latency", "ITL"),
    "queue": ("time in queue", "queue"),
    "end_to_end": ("end to end", "e2e"),
}
"""In full, and where there is little room."""


def server_rows(now: PolicyView, server: ServerStatus, frame: Frame, width: int) -> Iterator[Strip]:
    yield from _state(server, frame, width)
    if server.requests or not server.is_vllm:
        yield from _requests(now, server, frame, width)
    elif server.state == "active":
        # It counts everybody's requests, and of no kind.
        yield _running(now, frame.palette, width)
    yield from _cache(server, frame.palette, width)
    yield from _latencies(server, frame.palette, width)


def _state(server: ServerStatus, frame: Frame, width: int) -> Iterator[Strip]:
    """And since when, and what it says of it."""
    palette = frame.palette
    glyph = server_glyph(server, palette)
    since: list[Span] = []
    if server.state != "unknown":
        since = [(f"{_age(server.since, frame.now)} ", palette.text)]
    yield split_row(width, [(f" {glyph.char} {server.words}", glyph.style)], since)
    yield from reason(server.reason, palette, width)


def _running(now: PolicyView, palette: Palette, width: int) -> Strip:
    waiting = now.in_flight - now.running
    return pair(
        width,
        palette,
        "running · waiting" if width >= _NAMES_WIDTH else "run · wait",
        (f"{now.running:,}", palette.text),
        (" · ", palette.faint),
        (f"{waiting:,}", palette.text),
    )


def _requests(now: PolicyView, server: ServerStatus, frame: Frame, width: int) -> Iterator[Strip]:
    """Rows of the requests in flight by kind, with the age of the oldest."""
    palette = frame.palette
    if width >= TABLE_WIDTH:
        yield from _table(now, server, frame, width)
        return
    if not server.in_flight:
        yield pair(width, palette, "in flight", ("0", palette.text))
        return
    yield split_row(width, [(" in flight", palette.faint)], [("oldest ", palette.faint)])
    for each in server.in_flight:
        name = each.kind if width >= _NAMES_WIDTH else _SHORT_KINDS.get(each.kind, each.kind)
        yield split_row(
            width,
            [(f" {each.in_flight:3,} ", palette.text), (name, palette.muted)],
            [(f"{_oldest(now, each, frame)} ", palette.text)],
        )


def _table(now: PolicyView, server: ServerStatus, frame: Frame, width: int) -> Iterator[Strip]:
    palette = frame.palette
    heads = f" {'requests':<17}{'in flight':>9}{'oldest':>8}{'done':>8}{'failed':>8}"
    yield row(width, (f"{heads}{'p50':>5}{'p95':>6} s", palette.faint))
    for each in server.requests:
        failed = palette.attention if each.failed else palette.muted
        yield row(
            width,
            (f" {each.kind:<17}", palette.muted),
            (f"{each.in_flight:9,}", palette.text),
            (f"{_oldest(now, each, frame):>8}", palette.text),
            (f"{each.completed:8,}", palette.text),
            (f"{each.failed:8,}", failed),
            (f"{_seconds(each.p50_sec):>5}{_seconds(each.p95_sec):>6}", palette.text),
        )


def _cache(server: ServerStatus, palette: Palette, width: int) -> Iterator[Strip]:
    """What vLLM keeps of earlier tokens, and whether there is room for more."""
    if (use := server.kv_cache_use) is not None:
        style = palette.attention if use >= NEARLY_FULL else palette.accent
        cells = min(_WIDEST_BAR, width - 17)
        filled = bar(use, cells).ljust(cells)
        yield pair(width, palette, "KV cache", (filled, style), (f"{use:5.0%}", palette.text))
    if server.preemptions is not None:
        yield pair(width, palette, "preemptions", (f"{server.preemptions:,}", palette.text))


def _latencies(server: ServerStatus, palette: Palette, width: int) -> Iterator[Strip]:
    if not server.latencies:
        return
    heads = f"{'p50':>6}{'p95':>7} "
    title = " latency, last minute" if width >= _TITLE_WIDTH else " latency"
    yield split_row(width, [(title, palette.faint)], [(heads, palette.faint)])
    for each in server.latencies:
        numbers = f"{_short(each.p50_sec):>6}{_short(each.p95_sec):>7} "
        name = _LATENCY_NAMES[each.kind][width < _TITLE_WIDTH]
        yield split_row(width, [(f" {name}", palette.muted)], [(numbers, palette.text)])


def _oldest(now: PolicyView, requests: RequestStatus, frame: Frame) -> str:
    age = now.age(requests.oldest_sec, frame.now)
    return "" if age is None else clock_time(age)


def _age(since: float, now: float) -> str:
    """Exact while somebody may be waiting for it."""
    seconds = now - since
    return clock_time(seconds) if seconds < 3600 else duration(seconds)


def _seconds(value: float | None) -> str:
    return "–" if value is None else number(value)


def _short(seconds: float) -> str:
    """`4.2ms`, `480ms`, `2.1s`, `31s`."""
    if seconds >= 1:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:,.0f}s"
    millis = seconds * 1000
    return f"{millis:.1f}ms" if millis < 10 else f"{millis:.0f}ms"
