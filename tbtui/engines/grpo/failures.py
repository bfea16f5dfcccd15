"""When to try again, and when to stop trying."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator

from tbtui.engines.grpo.plan import derive_seed
from tbtui.errors import UserError
from tbtui.journal.events import Outcome
from tbtui.policies.base import PolicyLostError

_LONGEST_WAIT_SEC = 60.0
_FIRST_RESTART_SEC, _LONGEST_RESTART_SEC = 5.0, 300.0


class HaltError(UserError):
    """The run can't go on; the message is one line for a person."""


@contextlib.contextmanager
def one_cause() -> Iterator[None]:
    """Around a task group: raises the one error that says why: a `HaltError` if there is one, else
    a `PolicyLostError`, else the first.

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


class Losses:
    """Policies lost in a row, with no step trained in between."""

    def __init__(self, limit: int, run: str) -> None:
        """`limit`: how many may be made afresh; `run`: its name, for whoever resumes it."""
        self._limit = limit
        self._run = run
        self._in_a_row = 0
        self._down = 0
        """In a row, while its server was down."""
        self.trained = 0
        """Steps, as far as was told."""

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
                f"the policy was lost{again}: {reason}; tbtui run --resume {self._run} goes on from"
                f" step {self.trained}"
            )
        self._in_a_row += 1
        return min(_LONGEST_RESTART_SEC, _FIRST_RESTART_SEC * 2.0 ** (self._in_a_row - 1))


class FailureStreak:
    """Failures of infrastructure with nothing in between that worked.

    All trials that one incident takes along (a worker that dies) count as one failure.
    """

    def __init__(self, halt_after: int) -> None:
        """`halt_after` 0: never."""
        self._halt_after = halt_after
        self._failures: list[tuple[Outcome, str]] = []
        self._incidents: set[str] = set()
        self._last = ""

    def worked(self) -> None:
        """A trial ended by the policy's own doing."""
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
