"""What a server has done, for tests to look at from any thread. Optimiser steps are also written
down in the state directory, so that they can be counted over a killed server."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

_STEPS = "steps.log"


class Record:
    """Counts since the server's first start; `applied_steps` since the state directory's."""

    def __init__(self, state_dir: Path) -> None:
        self._lock = threading.Lock()
        self._steps = state_dir / _STEPS
        self._requests: Counter[str] = Counter()
        self._finished: dict[str, tuple[str, str | None]] = {}

    def request(self, kind: str) -> None:
        with self._lock:
            self._requests[kind] += 1

    def finished_with(self, session_id: str, status: str, detail: str | None) -> None:
        with self._lock:
            self._finished.setdefault(session_id, (status, detail))

    def step(self, run_id: str) -> None:
        with self._lock, self._steps.open("a") as file:
            file.write(run_id + "\n")

    @property
    def requests(self) -> Counter[str]:
        """Requests that came, by kind."""
        with self._lock:
            return Counter(self._requests)

    @property
    def finished(self) -> dict[str, tuple[str, str | None]]:
        """Sessions that their client closed: status and detail."""
        with self._lock:
            return dict(self._finished)

    @property
    def applied_steps(self) -> Counter[str]:
        """Optimiser steps truly taken, by training run."""
        with self._lock:
            if not self._steps.exists():
                return Counter()
            return Counter(self._steps.read_text().split())
