"""When to try again, and when to stop trying: a trial, a task, a policy, the run."""

from __future__ import annotations

import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tbtui.engines.grpo.rollouts import Rollout, derive_seed
from tbtui.errors import UserError
from tbtui.findings import Unusable
from tbtui.invocation import to_type
from tbtui.journal.events import Outcome, TasksSetAside
from tbtui.journal.writer import JournalWriter
from tbtui.outcomes import INFRASTRUCTURE, UNANSWERED
from tbtui.policies.base import PolicyLostError
from tbtui.verifier_fault import names_network

_LONGEST_WAIT_SEC = 60.0
_FIRST_RESTART_SEC, _LONGEST_RESTART_SEC = 5.0, 300.0
_SAME_FAILURES = 3
"""A task whose environment or verifier failed so often in one way is not tried again."""
_ENOUGH_TRIED = 6
"""Fewer tasks than this say nothing about the rest."""


class HaltError(UserError):
    """The run can't go on; the message is one line for a person."""


@contextlib.contextmanager
def one_cause() -> Iterator[None]:
    """Raise, of a task group's errors, the one that says why: a `HaltError` if there is one, else a
    `PolicyLostError`, else the first.

    Trials fail together when the run has to end.
    """
    try:
        yield
    except BaseExceptionGroup as errors:
        cause = errors.subgroup(HaltError) or errors.subgroup(PolicyLostError) or errors
        raise _first(cause) from errors


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def retry_wait(first_sec: float, attempt: int, seed: int) -> float:
    """Seconds before attempt `attempt` + 1: doubling from `first_sec`, up to half taken off.

    Trials that failed together must not come back together. Exponential back-off with "equal
    jitter": https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    wait = min(_LONGEST_WAIT_SEC, first_sec * 2.0 ** (attempt - 1))
    return wait * random.Random(derive_seed(seed, "retry", attempt)).uniform(0.5, 1.0)


class PolicyRestartLimit:
    """Counts policies lost in a row, with no step trained in between."""

    def __init__(self, limit: int, run: Path) -> None:
        """`limit`: how many may be made afresh; `run`: its directory, for the way to resume it."""
        self._limit = limit
        self._run = run
        self._in_a_row = 0
        self._down = 0
        """In a row, while its server was down."""
        self.trained = 0
        """The last step that was ever trained, as of the last call of `lost`."""

    def lost(self, trained: int, reason: str, *, server_down: bool = False) -> float:
        """Seconds to wait before a new policy is made, doubling up to some minutes.

        Args:
            trained: the last step that was ever trained. One that is only trained again, for its
                weights were lost, is no progress.
            server_down: its server is paused or out of reach. That says nothing against making
                another one, however long it takes.

        Raises:
            HaltError: it was one too many.
        """
        if trained > self.trained:
            self.trained, self._in_a_row = trained, 0
        if server_down and self._limit:
            self._down += 1
            return min(_LONGEST_RESTART_SEC, _FIRST_RESTART_SEC * 2.0 ** min(self._down - 1, 16))
        self._down = 0
        if self._in_a_row >= self._limit:
            again = f" ({self._in_a_row} new ones made since)" if self._in_a_row else ""
            raise HaltError(
                f"the policy was lost{again}: {reason};"
                f" {to_type('run', '--resume', self._run)} goes on from step {self.trained}"
            )
        self._in_a_row += 1
        return min(_LONGEST_RESTART_SEC, _FIRST_RESTART_SEC * 2.0 ** (self._in_a_row - 1))


def require_evidence(
    rollouts: Sequence[Rollout], unusable: UnusableTasks, *, answered: bool = False
) -> None:
    """Refuse to go on when not one trial of a batch could be run.

    Those of tasks that can't be used here say nothing about the others. Nor do those that a server
    refuses which has `answered` other trials: they may just be the tasks that it refuses.

    Raises:
        HaltError: infrastructure has failed each, or the policy's server has answered none, ever.
    """
    usable = [rollout for rollout in rollouts if rollout.plan.task.name not in unusable]
    silent = INFRASTRUCTURE if answered else INFRASTRUCTURE | UNANSWERED
    # A trial that a person gave a reward has run well enough for them.
    if usable and all(r.outcome in silent and r.reward is None for r in usable):
        last = usable[-1]
        raise HaltError(
            f"none of {len(usable)} trials could be run; the last one: {last.outcome}:"
            f" {last.reason}"
        )


class FailureStreak:
    """Counts failures of infrastructure with no success in between.

    All trials that one incident takes along (a worker that dies) count as one failure.
    """

    def __init__(self, halt_after: int) -> None:
        """`halt_after` 0: never."""
        self._halt_after = halt_after
        self._failures: list[tuple[Outcome, str]] = []
        self._incidents: set[str] = set()
        self._last = ""
        self.has_worked = False
        """A trial has ended by the policy's own doing."""

    def worked(self) -> None:
        """Start counting anew: a trial ended by the policy's own doing."""
        self.has_worked = True
        self._failures.clear()
        self._incidents.clear()

    def failed(self, trial: str, outcome: Outcome, reason: str, incident: str | None) -> None:
        """Count a failure.

        Raises:
            HaltError: it was one too many in a row.
        """
        if incident is not None:
            if incident in self._incidents:
                return
            self._incidents.add(incident)
        self._failures.append((outcome, reason))
        if self._halt_after and len(self._failures) >= self._halt_after:
            raise HaltError(self._summary(trial))

    def _summary(self, trial: str) -> str:
        counts = Counter(self._failures)
        outcome, reason = last = self._failures[-1]
        more = (
            f" ({counts[last]} times; {len(counts) - 1} other reasons)" if len(counts) > 1 else ""
        )
        return (
            f"{len(self._failures)} failures of infrastructure in a row, the last in {trial}:"
            f" {outcome}: {reason}{more}; mend it, or raise halt_after"
        )


class UnusableTasks:
    """Tasks that no trial can be scored on in this run's environment, each with its reason.

    Some are known before the first trial (the preflight), others turn out in one: an environment
    that can't be built, a verifier that can't work in a fresh sandbox either. Another attempt would
    end the same way, so there is none: no retry, no sibling, no later group. Every such task is an
    event with its reason, and a run in which too many turn out ends and says why.
    """

    def __init__(
        self, journal: JournalWriter, largest_share: float = 1.0, known: Mapping[str, Unusable] = {}
    ) -> None:
        """
        Args:
            largest_share: of the tasks tried, that may turn out unusable.
            known: what the journal has already.
        """
        self._journal = journal
        self._largest_share = largest_share
        self._known = dict(known)
        self._tried: set[str] = set()
        self._failures: dict[str, Counter[str]] = defaultdict(Counter)
        """Task -> reason -> how often its environment or its verifier failed for that reason."""
        self._found: set[str] = set()
        """Those that turned out in a trial of this process."""

    def __contains__(self, task: object) -> bool:
        return task in self._known

    def reason(self, task: str) -> str:
        return self._known[task].text

    def count(self, tasks: Iterable[str]) -> int:
        """How many of these are unusable."""
        return sum(task in self._known for task in tasks)

    def tried(self, task: str, *, verified: bool = False) -> None:
        """Record that a trial of the task has ended, with any outcome; `verified`: a verdict."""
        self._tried.add(task)
        if verified:
            self._failures.pop(task, None)

    def failed(self, task: str, why: Unusable, said: str) -> None:
        """Count a trial whose environment or verifier failed, which another attempt may mend.

        A task that fails the same way again and again, with no verdict in between and not for want
        of a network, is set aside.

        Args:
            why: of the task, if it goes on like this.
            said: all that is known of it.

        Raises:
            HaltError: as `add`.
        """
        self._failures[task][why.text] += 1
        if self._failures[task][why.text] >= _SAME_FAILURES and not names_network(said):
            self.add(task, why)

    def add(self, task: str, why: Unusable) -> None:
        """Stop using a task: a trial has shown that it can't be used.

        Raises:
            HaltError: too many of the tasks that were tried can't be.
        """
        if task in self._known:
            return
        self._known[task] = why
        self._found.add(task)
        self._journal.append(TasksSetAside.of({task: why}, "trial"))
        tried = len(self._tried | self._found)
        if tried >= _ENOUGH_TRIED and len(self._found) > self._largest_share * tried:
            raise HaltError(
                f"{len(self._found)} of the {tried} tasks tried can't be used in this environment"
                f" (max_unusable={self._largest_share:g}); {self._most_common()}"
            )

    def none_left(self) -> HaltError:
        """The error of a run that has no task left to train on."""
        return HaltError(f"no task is left to train on; {self._most_common()}")

    def _most_common(self) -> str:
        reasons = Counter(each.text for each in self._known.values())
        (reason, times), *_ = reasons.most_common(1)
        return f"the reason of {times} of them: {reason}"
