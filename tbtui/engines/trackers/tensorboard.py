"""TensorBoard event files in the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tbtui.engines.trackers.rows import Row

PACKAGE = "tensorboardX"
"""Writes TensorBoard's format with numpy and protobuf alone."""


class TensorBoardSink:
    """Scalars by step, written anew from the journal at every start.

    Files of before are removed, and the new one begins by telling a TensorBoard that has them
    open to forget what they said.
    """

    def __init__(self, path: Path) -> None:
        # Here, because the extra may not be installed.
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found,unused-ignore]

        path.mkdir(exist_ok=True)
        for before in path.glob("events.out.tfevents.*"):
            before.unlink()
        self._writer = SummaryWriter(str(path), purge_step=0)

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in row.values.items():
                self._writer.add_scalar(name, value, row.step, walltime=row.time)
        if rows:
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()
