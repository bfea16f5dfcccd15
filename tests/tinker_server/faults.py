"""Faults that a test asks for. Everything may be called from any thread, while requests run.

A fault names what it strikes by kind: "forward_backward", "asample", "optim_step"... (see
`routes.py`), "retrieve" or "retrieve:optim_step" for the retrieval of a future.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.tinker_server.errors import Category

Action = Literal["answer", "lose", "slow", "fail"]


@dataclass(slots=True)
class Fault:
    """Strikes the next `times` requests of `kind`, after letting `after` of them pass."""

    action: Action
    kind: str
    times: int = 1
    after: int = 0
    status: int = 500
    detail: str = ""
    seconds: float = 0.0
    category: Category = "server"


@dataclass(frozen=True, slots=True)
class Pause:
    """A queue that doesn't move: nothing of `kinds` (empty: anything) is carried out."""

    state: str
    reason: str | None
    kinds: frozenset[str]
    until: float | None
    """On the monotonic clock."""


class Faults:
    """What will go wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._pause: Pause | None = None

    def answer(
        self, kind: str, status: int, *, times: int = 1, after: int = 0, detail: str = ""
    ) -> None:
        """Answer with `status`, without doing anything."""
        self.add(Fault("answer", kind, times, after, status=status, detail=detail))

    def lose(self, kind: str, *, times: int = 1, after: int = 0) -> None:
        """Carry the request out, and drop the connection instead of answering."""
        self.add(Fault("lose", kind, times, after))

    def slow(self, kind: str, seconds: float) -> None:
        """Carry the next request out, and answer `seconds` later."""
        self.add(Fault("slow", kind, seconds=seconds))

    def fail(self, kind: str, *, category: Category = "server", detail: str = "") -> None:
        """The next request is accepted, and its future fails with `category`."""
        self.add(Fault("fail", kind, category=category, detail=detail))

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def pause(
        self,
        state: str = "paused_capacity",
        reason: str | None = None,
        *,
        kinds: Sequence[str] = (),
        seconds: float | None = None,
    ) -> None:
        """Carry out nothing of `kinds` (of anything, when empty) until `resume`, or for `seconds`;
        polls answer `state` and `reason`. Kinds: those of futures, as for `fail`."""
        until = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._pause = Pause(state, reason, frozenset(kinds), until)

    def resume(self) -> None:
        with self._lock:
            self._pause = None

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()
            self._pause = None

    def paused(self, kind: str) -> Pause | None:
        """The pause that holds back requests of `kind` now."""
        with self._lock:
            pause = self._pause
            if pause is not None and pause.until is not None and time.monotonic() > pause.until:
                pause = self._pause = None
        if pause is not None and pause.kinds and kind not in pause.kinds:
            return None
        return pause

    def take(self, actions: Sequence[Action], names: Collection[str]) -> Fault | None:
        """The first fault that strikes this request; it is used up by one."""
        with self._lock:
            for fault in self._faults:
                if fault.action not in actions or fault.kind not in names:
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault
        return None

    @property
    def pending(self) -> int:
        """Faults that have not struck as often as they were to."""
        with self._lock:
            return len(self._faults)
