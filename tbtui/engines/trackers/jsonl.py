"""`metrics.jsonl` in the run directory: one JSON object a step and one an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from tbtui.engines.trackers.rows import Row


class JsonLinesSink:
    """Written anew from the journal at every start, so it is complete and has nothing twice.

    Each line has `step`, `time` (seconds since the epoch) and the metrics; what is not a finite
    number is null. The file of before stays in place until the new one has caught up with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished: Path | None = path.with_suffix(".new")
        self._file = self._unfinished.open("w", encoding="utf-8")

    def log(self, rows: Sequence[Row]) -> None:
        self._file.writelines(line(row) for row in rows)
        self._file.flush()
        if self._unfinished is not None:
            self._unfinished.replace(self._path)
            self._unfinished = None

    def close(self) -> None:
        self._file.close()


def line(row: Row) -> str:
    """A row as one line of JSON, its end included."""
    values = {name: v if math.isfinite(v) else None for name, v in row.values.items()}
    return json.dumps({"step": row.step, "time": round(row.time, 3), **values}) + "\n"
