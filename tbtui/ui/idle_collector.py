"""Collects garbage while the person is idle."""

from __future__ import annotations

import gc
from collections.abc import Callable

IDLE_SEC = 0.3
"""Idle time begins so long after the last key or mouse event: its answer is out."""
_PAUSE_SEC = 0.7
"""The next key isn't just coming."""
_YOUNG = 10_000
"""New objects that are worth a look for garbage: 10 to 20 ms."""
_FULL_SEC = 60.0
"""Between looks at all objects, where screens have come and gone: 100 ms and more, which is why
they don't come of themselves,"""
_REST_SEC = 5.0
"""nor sooner than this after the last key,"""
_ALONE_SEC = 600.0
"""and while no key is pressed no more often than this."""


class IdleCollector:
    """Runs Python's garbage collector while no key is pressed.

    Python's collector comes when many objects have been made: in the middle of a paint, with
    a person waiting for it.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._disturbed = self._looked_through = monotonic()
        self._thresholds = gc.get_threshold()
        """The process's own, before and after."""

    def begin(self) -> None:
        """Stop automatic collections, except after very many new objects."""
        gc.enable()
        gc.collect()
        # What has been made by now stays: let the collector look at new things only.
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(5 * _YOUNG, 10, 20)

    def end(self) -> None:
        """Turn automatic collections on again. What was there when this began stays
        for good: to look through it once more would take a fifth of a second of every exit."""
        gc.set_threshold(*self._thresholds)

    def note_input(self) -> None:
        """Note that a key was pressed or the mouse moved."""
        self._disturbed = self._monotonic()

    @property
    def idle(self) -> bool:
        """Whether no key has been pressed for `IDLE_SEC`."""
        return self._since(self._disturbed) >= IDLE_SEC

    def collect(self) -> None:
        """Collect garbage as far as it is worth it; to be called often, but only when idle."""
        resting = self._since(self._disturbed) >= _REST_SEC
        between = _FULL_SEC if self._disturbed > self._looked_through else _ALONE_SEC
        if resting and self._since(self._looked_through) >= between:
            self._looked_through = self._monotonic()
            gc.collect()
        elif self._since(self._disturbed) >= _PAUSE_SEC and gc.get_count()[0] >= _YOUNG:
            gc.collect(1)

    def _since(self, moment: float) -> float:
        return self._monotonic() - moment
