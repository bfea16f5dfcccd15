"""GPUs, a row each, by machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.strip import Strip

from tbtui.ui.drawing.charts import bar
from tbtui.ui.drawing.rows import Span, reason, row
from tbtui.ui.drawing.text import clip, visible
from tbtui.ui.panes.pane import Frame
from tbtui.ui.theme.palette import Palette

if TYPE_CHECKING:
    from tbtui.journal.events import GpuMeasured

_NAMES_WIDTH = 60
"""From here on there is room for names, watts and processes."""
_NAME = 19
_PROCESSES = 11
_NUMBERS = 3 + 5 + 8 + 4 + 1
"""Cells of index, use, memory and temperature, and of the margin."""


def gpu_rows(frame: Frame, width: int) -> Iterator[Strip]:
    """Rows of the GPUs; none where no GPU was ever seen."""
    machines, palette = frame.state.gpus.values(), frame.palette
    if any(machine.gpus for machine in machines):
        yield _heads(palette, width)
    for machine in machines:
        if machine.unreachable:
            yield row(
                width,
                (" ! ", palette.infrastructure),
                (machine.host, palette.text),
                (": no GPUs to be seen", palette.muted),
            )
            yield from reason(machine.unreachable, palette, width)
        elif len(machines) > 1:
            yield row(width, (f" {machine.host}", palette.muted))
        for gpu in machine.gpus:
            yield _gpu(gpu, palette, width)


def _heads(palette: Palette, width: int) -> Strip:
    named = width >= _NAMES_WIDTH
    name = 3 + _NAME if named else 4
    # The bar has no head of its own.
    use = 3 + (_NAME if named else 0) + _bar_width(width) + 5 - name
    heads = f"{' GPU':<{name}}{'use':>{use}}{'GiB':>8}"
    heads += f"{'W':>5}{'°C':>4}{'processes':>{_PROCESSES}}" if named else f"{'°C':>4}"
    return row(width, (heads, palette.faint))


def _bar_width(width: int) -> int:
    taken = _NUMBERS + (_NAME + 5 + _PROCESSES if width >= _NAMES_WIDTH else 0)
    return max(2, width - taken)


def _gpu(gpu: GpuMeasured, palette: Palette, width: int) -> Strip:
    named = width >= _NAMES_WIDTH
    head: list[Span] = [(f" {gpu.index:<2}", palette.muted)]
    if gpu.problem:
        return row(width, *head, ("! ", palette.infrastructure), (gpu.problem, palette.text))
    if named:
        name = clip(visible(gpu.name.removeprefix("NVIDIA ")), _NAME - 1)
        head.append((name.ljust(_NAME), palette.text))
    cells = _bar_width(width)
    use = gpu.utilisation
    style = palette.accent if use else palette.faint
    head.append((bar(use or 0.0, cells).ljust(cells), style))
    head.append((f"{'–' if use is None else f'{use:.0%}':>5}", palette.text))
    head.append((f"{_memory(gpu):>8}", palette.text))
    if named:
        head.append((f"{_or_dash(gpu.power_watt):>5}", palette.text))
    head.append((f"{_or_dash(gpu.temperature_c):>4}", palette.text))
    if named:
        head.append((f"{_processes(gpu):>{_PROCESSES}}", palette.muted))
    return row(width, *head)


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
