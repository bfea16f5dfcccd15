"""Figures and words that several readers of a journal need alike.

Planned steps, time without a process, held-out pass rates, money.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, fsum
from typing import Any

from tbtui.journal.events import (
    AlertSent,
    BudgetReached,
    Entry,
    EvalFinished,
    RunContinued,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
)
from tbtui.vocabulary import UNTRIED_SHARE, BudgetUnit


def total_steps(max_steps: int | None, n_epochs: int | None, tasks: int, batch_size: int) -> int:
    """Batches in a run: of `max_steps` and as many as `n_epochs` passes over the tasks need, the
    fewer. None: no such limit. The last batch of the passes is filled up from one more.

    Raises:
        ValueError: there is no limit, no task, or no place in a batch.
    """
    if max_steps == 0:
        return 0  # which no task is needed for
    if tasks < 1 or batch_size < 1:
        raise ValueError(f"{tasks} tasks in batches of {batch_size} make no step")
    limits = [max_steps] if max_steps is not None else []
    if n_epochs is not None:
        limits.append(ceil(n_epochs * tasks / batch_size))
    if not limits:
        raise ValueError("a run needs max_steps or n_epochs")
    return min(limits)


def planned_steps(settings: Mapping[str, Any], train_tasks: int) -> int:
    """`total_steps` by the settings that a journal has; 0 where they don't say."""
    epochs = settings.get("n_epochs") if train_tasks else None
    batch = int(settings.get("batch_size", 1))
    try:
        return total_steps(settings.get("max_steps"), epochs, max(1, train_tasks), batch)
    except ValueError:
        return 0


SAMPLING_SPEED = "perf/sampling_tokens_per_sec"
"""Metric: completion tokens, by the time that a step's sampling took."""
TRAINING_SPEED = "perf/training_tokens_per_sec"
"""Metric: tokens of trained sequences, prompts included, by the time that gradients and optimiser
steps took."""


def reward_text(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"


Gap = tuple[float, float]
"""From the last event of a process to the first one of the next."""


@dataclass(slots=True)
class Downtime:
    """Fold every event of the journal in.

    That a run goes on is journalled when its policy is loaded: what another process wrote before
    that begins with a phase, too.
    """

    seconds: float = 0.0
    gaps: tuple[Gap, ...] = ()
    """Before the process that runs it now, or ran it last."""
    _latest: float = 0.0
    _process: tuple[str, int] = ("", 0)
    _starts: list[Gap] = field(default_factory=list)
    """Before each phase that may be a process's first one."""

    def see(self, entry: Entry) -> None:
        match event := entry.event:
            case RunPhaseChanged():
                if event.phase is not RunPhase.STARTING:
                    self._starts.clear()
                elif self._latest:
                    self._starts.append((self._latest, entry.time))
            case RunStarted():
                self._starts.clear()
                self._process = (event.host, event.pid)
            case RunContinued():
                # One that has lost its policy goes on in the same process.
                again = (event.host, event.pid) == self._process
                self.gaps = () if again else tuple(self._starts) or ((self._latest, entry.time),)
                self.seconds += sum(max(0.0, until - since) for since, until in self.gaps)
                self._starts.clear()
                self._process = (event.host, event.pid)
            case _:
                pass
        self._latest = entry.time


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


def dollars(usd: float) -> str:
    """US dollars, in cents; less than ten cents with two significant digits."""
    if usd == 0 or usd >= 0.1:
        return f"${usd:,.2f}"
    return f"${usd:.2g}" if usd >= 1e-4 else "<$0.0001"


def task_shares(
    weights: Mapping[str, float], floor: float, untried: Mapping[str, float]
) -> dict[str, float]:
    """Each task's chance to be the next one drawn: a share `floor` of the draws is uniform, and of
    the others `UNTRIED_SHARE` is of untried tasks.

    Args:
        weights: of the tasks that can be drawn, from 0 up. Without any all draws are uniform.
        untried: those of which nothing is known, with the weights that they have among each other.
    """
    total, of_untried = fsum(weights.values()), fsum(untried.values())
    uniform = floor if total else 1.0
    first = (1 - uniform) * UNTRIED_SHARE if of_untried else 0.0
    return {
        task: uniform / len(weights)
        + (first * untried.get(task, 0.0) / of_untried if of_untried else 0.0)
        + ((1 - uniform - first) * weight / total if total else 0.0)
        for task, weight in weights.items()
    }


def weight_words(factor: float, pinned: bool) -> str:
    """What somebody wants of a task: `muted`, `weight x 2`, `in every batch`."""
    words = "in every batch" if pinned else "muted" if factor == 0 else f"weight x {factor:g}"
    return f"{words}, weight x {factor:g}" if pinned and factor != 1 else words


def budget_text(unit: BudgetUnit, amount: float) -> str:
    """An amount of what a budget counts: `$2.10`, `1.5 hours`, `1,200 rollouts`."""
    match unit:
        case "dollars":
            return dollars(amount)
        case "hours":
            return f"{amount:.3g} hours"
        case _:
            return f"{amount:,.0f} {unit}"


def budget_words(event: BudgetReached) -> str:
    """`$8.10 of $10.00 spent (81%)`, and what follows from that."""
    spent, limit = budget_text(event.budget, event.spent), budget_text(event.budget, event.limit)
    then = ": the run ends with what is paid for" if event.ends else ""
    return f"{spent} of {limit} spent ({event.spent / event.limit:.0%}){then}"


def undelivered_words(event: AlertSent) -> str:
    """`the alert of the alarm did not reach hooks.example.org: refused (5 tries)`."""
    tries = f"{event.tries} {'try' if event.tries == 1 else 'tries'}"
    return f"the alert of the {event.about} did not reach {event.to}: {event.error} ({tries})"
