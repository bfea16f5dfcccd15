"""The phase of a run, as the journal has it: what keeps the next step from being trained."""

from __future__ import annotations

import time

from tbtui.engines.grpo.context import EngineContext
from tbtui.journal.events import RunPhase, RunPhaseChanged

_WAITING = (RunPhase.SAMPLING, RunPhase.REVIEWING)
"""Phases in which the next step waits to be trained."""


class RunPhases:
    """Journals the phases of a run. One is about the next step to be trained, and no later one."""

    def __init__(self, run: EngineContext) -> None:
        self._run = run
        self.now, self._since = RunPhase.STARTING, time.monotonic()
        self._reviewed: set[int] = set()
        """Steps whose review waits for a person."""
        self.reviewing_sec = 0.0
        """How long the step under way has waited for nothing but its review."""

    def begin_step(self) -> None:
        """Wait for the trials and the review of the next step."""
        self.reviewing_sec = 0.0
        self.wait()

    def wait(self) -> None:
        """Enter the phase that keeps the next step from being trained."""
        reviewing = self._run.step + 1 in self._reviewed
        self.enter(RunPhase.REVIEWING if reviewing else RunPhase.SAMPLING)

    def go_on(self, phase: RunPhase) -> None:
        """Return to a phase that was left for another."""
        if phase in _WAITING:
            self.wait()
        else:
            self.enter(phase)

    def enter(self, phase: RunPhase) -> None:
        now = time.monotonic()
        if self.now is RunPhase.REVIEWING:
            self.reviewing_sec += now - self._since
        self.now, self._since = phase, now
        self._run.journal.append(RunPhaseChanged(phase=phase, step=self._run.step))

    def review_waits(self, step: int) -> None:
        """The review of a step waits for a person."""
        self._reviewed.add(step)
        self._changed(step)

    def review_interrupted(self, step: int) -> None:
        """The review of a step waits for fresh trials first."""
        self._reviewed.discard(step)
        self._changed(step)

    def review_closed(self, step: int) -> None:
        """The step is trained next: that is a phase of its own."""
        self._reviewed.discard(step)

    def _changed(self, step: int) -> None:
        if step == self._run.step + 1 and self.now in _WAITING:
            self.wait()
