"""What happens to GPUs and is worth a line for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tbtui.journal.events import Entry, GpusMeasured, RunContinued


class GpuLines:
    """Fold every event of the journal in."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        """Machine -> what was said of it last."""

    def lines(self, entry: Entry) -> Iterator[str]:
        """What is to be told now: `node-1: 2 x NVIDIA H100 80GB HBM3`, `node-2: Connection
        refused`. Each machine is told of when it is seen first, and when that has changed."""
        match entry.event:
            case RunContinued():
                self._told.clear()
            case GpusMeasured() as measured:
                said = _said(measured)
                if self._told.get(measured.host) != said:
                    self._told[measured.host] = said
                    yield f"{measured.host}: {said}"
            case _:
                pass


def _said(measured: GpusMeasured) -> str:
    if measured.unreachable:
        return f"no GPUs to be seen ({measured.unreachable})"
    kinds = Counter(gpu.name for gpu in measured.gpus if not gpu.problem)
    parts = [f"{count} x {name}" for name, count in kinds.items()]
    parts += [f"GPU {gpu.index}: {gpu.problem}" for gpu in measured.gpus if gpu.problem]
    return ", ".join(parts) or "no GPUs"
