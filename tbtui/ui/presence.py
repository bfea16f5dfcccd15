"""Whether the person is at the terminal, as it reports, and what happened while they were not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tbtui.ui.drawing.text import rate
from tbtui.view.state import RunState
from tbtui.view.waiting import duration

AWAY_SEC = 60.0
"""Below it, nobody has missed anything."""


@dataclass(frozen=True, slots=True)
class _Moment:
    at: float
    run: str
    step: int
    held_out: float | None
    alarms: int


class Presence:
    """Follows the terminal's focus events. Terminals that report none leave it as it is."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._left: _Moment | None = None
        self._reports = False

    @property
    def watching(self) -> bool:
        """Whether the terminal reports that it has the focus."""
        return self._reports and self._left is None

    def leave(self, state: RunState) -> None:
        """Record that the terminal has lost the focus."""
        self._reports = True
        self._left = self._left or self._moment(state)

    def come_back(self, state: RunState) -> str:
        """Record the focus's return; returns one line on what has changed, or an empty text."""
        left, self._left = self._left, None
        if left is None:
            return ""
        now = self._moment(state)
        if now.run != left.run or now.at - left.at < AWAY_SEC:
            return ""
        parts = []
        if now.step != left.step:
            parts.append(f"step {left.step} → {now.step}")
        if now.held_out is not None and now.held_out != left.held_out:
            before = f"{rate(left.held_out)} → " if left.held_out is not None else ""
            parts.append(f"held out {before}{rate(now.held_out)}")
        if (alarms := now.alarms - left.alarms) > 0:
            parts.append("an alarm" if alarms == 1 else f"{alarms} alarms")
        if state.status is not None:
            parts.append(f"the run has {state.status}")
        return f"in {duration(now.at - left.at)}: {', '.join(parts)}" if parts else ""

    def _moment(self, state: RunState) -> _Moment:
        held_out = state.evals[-1].pass_rate if state.evals else None
        return _Moment(self._monotonic(), state.run, state.step, held_out, state.alarms_raised)
