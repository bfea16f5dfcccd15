"""The rewards of a run's tasks by step: what two runs can be compared by. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tbtui.journal.events import Entry, Purpose, TrialFinished, TrialQueued

KINDS = (TrialQueued.kind, TrialFinished.kind)
"""Of the events that it needs."""


@dataclass(slots=True)
class Rewards:
    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Tally:
    """Fold every event of `KINDS` in."""

    steps: dict[tuple[Purpose, int], dict[str, Rewards]] = field(default_factory=dict)
    """Of scored trials: of training at its step, or of the evaluation after it; by task."""
    _live: dict[str, tuple[Purpose, int, str]] = field(default_factory=dict)

    def see(self, entry: Entry) -> None:
        match event := entry.event:
            case TrialQueued():
                self._live[event.trial] = (event.purpose, event.step, event.task)
            case TrialFinished():
                queued = self._live.pop(event.trial, None)
                if queued is not None and event.reward is not None:
                    purpose, step, task = queued
                    rewards = self.steps.setdefault((purpose, step), {}).setdefault(task, Rewards())
                    rewards.count += 1
                    rewards.total += event.reward
            case _:
                pass

    def of(self, task: str, purpose: Purpose, steps: Iterable[int]) -> Rewards:
        """A task's rewards at these steps."""
        found = [self.steps.get((purpose, step), {}).get(task, Rewards()) for step in steps]
        return Rewards(sum(each.count for each in found), sum(each.total for each in found))
