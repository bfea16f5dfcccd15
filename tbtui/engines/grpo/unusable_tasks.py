"""Tasks that no trial can be scored on in this run's environment.

Some are known before the first trial (the preflight), others turn out in one: an environment that
can't be built, a verifier that can't work in a fresh sandbox either. Another attempt would end the
same way, so there is none: no retry, no sibling, no later group. Every such task is an event with
its reason, and a run in which too many turn out ends and says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tbtui.engines.grpo.failures import HaltError
from tbtui.journal.events import TasksSetAside
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.verifier_fault import names_network

_SAME_SETUP_FAILURES = 3
"""A task whose environment failed so often in one way is not tried again."""
_ENOUGH_TRIED = 6
"""Fewer tasks than this say nothing about the rest."""


class UnusableTasks:
    """By name, with the reason of each."""

    def __init__(
        self, journal: JournalWriter, largest_share: float = 1.0, known: Mapping[str, str] = {}
    ) -> None:
        """
        Args:
            largest_share: of the tasks tried, that may turn out unusable.
            known: what the journal has already.
        """
        self._journal = journal
        self._largest_share = largest_share
        self._reasons = dict(known)
        self._tried: set[str] = set()
        self._setups: Counter[tuple[str, str]] = Counter()
        """(Task, reason) -> how often its environment failed to start for that reason."""
        self._found: dict[str, str] = {}
        """Those that turned out in a trial of this process."""

    def __contains__(self, task: object) -> bool:
        return task in self._reasons

    def reason(self, task: str) -> str:
        return self._reasons[task]

    def count(self, tasks: Iterable[str]) -> int:
        """How many of these are unusable."""
        return sum(task in self._reasons for task in tasks)

    def tried(self, task: str) -> None:
        """A trial of the task has ended, however it did."""
        self._tried.add(task)

    def setup_failed(self, task: str, reason: str, said: str) -> None:
        """The environment of a trial could not be had, which another attempt may mend; if it fails
        the same way again and again, and not for want of a network, it is set aside.

        Args:
            reason: one line.
            said: all that is known of it.

        Raises:
            HaltError: as `set_aside`.
        """
        self._setups[task, reason] += 1
        if self._setups[task, reason] >= _SAME_SETUP_FAILURES and not names_network(said):
            self.set_aside(task, reason)

    def set_aside(self, task: str, reason: str) -> None:
        """A trial has shown that the task can't be used.

        Raises:
            HaltError: too many of the tasks that were tried can't be.
        """
        if task in self._reasons:
            return
        self._reasons[task] = self._found[task] = reason
        self._journal.append(TasksSetAside(tasks={task: reason}, by="trial"))
        tried = len(self._tried | self._found.keys())
        if tried >= _ENOUGH_TRIED and len(self._found) > self._largest_share * tried:
            raise HaltError(
                f"{len(self._found)} of the {tried} tasks tried can't be used in this environment"
                f" (max_unusable={self._largest_share:g}); {self._most_common()}"
            )

    def none_left(self) -> HaltError:
        """What ends a run that has no task left to train on."""
        return HaltError(f"no task is left to train on; {self._most_common()}")

    def _most_common(self) -> str:
        reasons = Counter(self._reasons.values())
        (reason, times), *_ = reasons.most_common(1)
        return f"the reason of {times} of them: {reason}"
