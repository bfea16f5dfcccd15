"""What an evaluation says of the held-out tasks, in words: no rate without what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.journal.events import EvalFinished


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One evaluation."""

    step: int
    rate: float | None
    """Pass rate, over the tasks that have a scored trial; None: no task has."""
    tasks: int
    """Those that have; 0 where the journal says nothing of single tasks."""
    unscored_tasks: int
    trials: int
    mean_reward: float | None

    @classmethod
    def of(cls, event: EvalFinished) -> HeldOut:
        return cls(
            event.step,
            event.pass_rate,
            len(event.by_task),
            event.unscored_tasks,
            event.scored + event.unscored,
            event.mean_reward,
        )

    @property
    def coverage(self) -> str:
        """`of 4 of 11 tasks; 7 unscored`; empty where the rate is of all."""
        if not self.unscored_tasks or self.rate is None:
            return ""
        return f"of {self.tasks} of {self.tasks + self.unscored_tasks} tasks" + (
            f"; {self.unscored_tasks} unscored"
        )

    @property
    def words(self) -> str:
        """`0.25 of 4 of 11 tasks; 7 unscored`."""
        if self.rate is None:
            tasks = self.unscored_tasks
            return f"unscored ({tasks} task{'s' * (tasks != 1)})" if tasks else "unscored"
        return f"{self.rate:.2f} {self.coverage}".rstrip()


def pass_rates_in_words(first: HeldOut, last: HeldOut) -> str:
    """`held-out pass rate 0.33 → 0.85`, or that of the one there is."""
    if last.trials == 1:
        # Nothing to take a rate of.
        reward = last.rate if last.mean_reward is None else last.mean_reward
        return "one trial, unscored" if reward is None else f"one trial, reward {reward:g}"
    if first == last:
        return f"held-out pass rate {last.words}"
    if first.rate is not None and first.coverage == last.coverage:
        return f"held-out pass rate {first.rate:.2f} → {last.words}"
    return f"held-out pass rate {first.words} → {last.words}"
