"""Rows about the policy's server (state, requests, cache, latencies) and about GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.strip import Strip

from tbtui.server_status import RequestStatus, ServerStatus
from tbtui.ui.drawing.charts import bar
from tbtui.ui.drawing.rows import Span, pair, reason, row, split_row
from tbtui.ui.drawing.text import clip, clock_time, number, visible
from tbtui.ui.panes.pane import Frame
from tbtui.ui.theme.glyphs import server_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.server import NEARLY_FULL, PolicyView
from tbtui.view.waiting import duration

if TYPE_CHECKING:
    from tbtui.journal.events import GpuMeasured, GpuShare

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
    """Rows of the server's state, since when, and the reason."""
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
    """Rows of vLLM's KV cache and prefix cache."""
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
    """Return an age, to the second while it is short."""
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


_GPU_NAMES_WIDTH = 60
"""From here on there is room for names, temperatures and processes."""
_NAME = 19
_PROCESSES = 11
_NUMBERS = 3 + 5 + 8 + 5 + 1
"""Cells of index, use, memory and power, and of the margin."""


def gpu_rows(frame: Frame, width: int) -> Iterator[Strip]:
    """Rows of the GPUs, and of what uses them; none where no GPU was ever seen."""
    machines, palette = frame.state.gpus.values(), frame.palette
    if any(machine.gpus for machine in machines):
        yield _heads(palette, width)
    for machine in machines:
        if machine.unreachable:
            yield row(
                width,
                (" ! ", palette.infrastructure),
                (machine.host, palette.text),
                (": no GPUs found", palette.muted),
            )
            yield from reason(machine.unreachable, palette, width)
        elif len(machines) > 1:
            yield row(width, (f" {machine.host}", palette.muted))
        for gpu in machine.gpus:
            yield _gpu(gpu, palette, width)
            for share in gpu.shares:
                yield _share(share, palette, width)


def _heads(palette: Palette, width: int) -> Strip:
    named = width >= _GPU_NAMES_WIDTH
    name = 3 + _NAME if named else 4
    # The bar has no head of its own.
    use = 3 + (_NAME if named else 0) + _bar_width(width) + 5 - name
    heads = f"{' GPU':<{name}}{'use':>{use}}{'GiB':>8}{'W':>5}"
    heads += f"{'°C':>4}{'processes':>{_PROCESSES}}" if named else ""
    return row(width, (heads, palette.faint))


def _bar_width(width: int) -> int:
    taken = _NUMBERS + (_NAME + 4 + _PROCESSES if width >= _GPU_NAMES_WIDTH else 0)
    return max(2, width - taken)


def _gpu(gpu: GpuMeasured, palette: Palette, width: int) -> Strip:
    named = width >= _GPU_NAMES_WIDTH
    head: list[Span] = [(f" {gpu.index:<2}", palette.muted)]
    if gpu.problem:
        return row(width, *head, ("! ", palette.infrastructure), (gpu.problem, palette.text))
    if named:
        name = clip(visible(gpu.name.removeprefix("NVIDIA ")), _NAME - 1)
        head.append((name.ljust(_NAME), palette.text))
    cells = _bar_width(width)
    style = palette.accent if gpu.utilisation else palette.faint
    head.append((bar(gpu.utilisation or 0.0, cells).ljust(cells), style))
    head.append((f"{_percent(gpu.utilisation):>5}", palette.text))
    head.append((f"{_memory(gpu):>8}", palette.text))
    head.append((f"{_or_dash(gpu.power_watt):>5}", palette.text))
    if named:
        head.append((f"{_or_dash(gpu.temperature_c):>4}", palette.text))
        head.append((f"{_processes(gpu):>{_PROCESSES}}", palette.muted))
    return row(width, *head)


def _share(share: GpuShare, palette: Palette, width: int) -> Strip:
    """Row of a role's use of the GPU above it: where there is room, below that one's figures."""
    aligned = width >= _GPU_NAMES_WIDTH
    use, held = f"{_percent(share.utilisation):>5}", "–"
    if share.memory_mib is not None:
        held = f"{share.memory_mib / 1024:.1f}"
    behind = width - 3 - _NAME - _bar_width(width) - 13 if aligned else 1
    return split_row(
        width,
        [(f"   {share.role}" if aligned else f"  {share.role}", palette.muted)],
        [
            (use, palette.text if share.utilisation else palette.muted),
            (f"{held:>{8 if aligned else 6}}", palette.text),
            (" " * behind, None),
        ],
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _memory(gpu: GpuMeasured) -> str:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if used is None and total is None:
        return "–"
    return f"{_gib(used)}/{_gib(total)}"


def _gib(mib: int | None) -> str:
    return "–" if mib is None else f"{mib / 1024:.0f}"


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value}"


def _processes(gpu: GpuMeasured) -> str:
    """Row of the processes: in a container their owners are unknown."""
    if gpu.processes is None:
        return ""
    if gpu.own_processes:
        others = gpu.processes - gpu.own_processes
        return f"{gpu.own_processes} own" + (f" + {others}" if others else "")
    return f"{gpu.processes}"
