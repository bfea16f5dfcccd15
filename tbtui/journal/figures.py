"""Figures that several readers of a journal need alike.

Planned steps, time without a process, tasks' chances to be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, fsum
from typing import Any

from tbtui.journal.events import Entry, RunContinued, RunPhase, RunPhaseChanged, RunStarted
from tbtui.vocabulary import UNTRIED_SHARE


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
    try:
        batch = int(settings.get("batch_size") or 1)
        return total_steps(settings.get("max_steps"), epochs, max(1, train_tasks), batch)
    except (OverflowError, TypeError, ValueError):
        return 0


SAMPLING_SPEED = "perf/sampling_tokens_per_sec"
"""Metric: completion tokens, by the time that a step's sampling took."""
TRAINING_SPEED = "perf/training_tokens_per_sec"
"""Metric: tokens of trained sequences, prompts included, by the time that gradients and optimiser
steps took."""


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
