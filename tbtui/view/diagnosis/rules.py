"""The diagnosis of a run: all rules, their findings ranked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tbtui.findings import SEVERITIES, Finding
from tbtui.view.diagnosis import learning, outcomes, waits
from tbtui.view.diagnosis.snapshot import RunSnapshot, take
from tbtui.view.state import RunState
from tbtui.view.times import Outlook

DETECTORS: tuple[Callable[[RunSnapshot], Iterator[Finding]], ...] = (
    waits.waits_for_a_person,
    waits.held_trials,
    waits.policy_outages,
    waits.asked_again,
    waits.stragglers,
    waits.queue_wait,
    waits.idle_places,
    outcomes.rare_outcomes,
    outcomes.parse_errors,
    outcomes.truncated_answers,
    outcomes.unusable_tasks,
    learning.no_signal_groups,
    learning.sampler_gap,
    learning.entropy_collapse,
    learning.far_from_start,
    learning.raised_alarms,
)


def rank(finding: Finding) -> tuple[int, float, str]:
    """Key to sort by: what blocks the run first, then what concerns the most of it."""
    return SEVERITIES.index(finding.severity), -finding.share, finding.rule


def diagnose(outlook: Outlook) -> tuple[Finding, ...]:
    """What is wrong with a run at one moment, the most important first."""
    run = take(outlook)
    return tuple(sorted((each for detect in DETECTORS for each in detect(run)), key=rank))


class Diagnosis:
    """The findings of a run that goes on, worked out anew at most once a second.

    A change of the run in between is not seen until then; another run, or a clock that was moved
    back, at once.
    """

    EVERY_SEC = 1.0

    def __init__(self) -> None:
        self._of: RunState | None = None
        self._version = -1
        self._at = 0.0
        self._findings: tuple[Finding, ...] = ()

    def at(self, outlook: Outlook) -> tuple[Finding, ...]:
        """The findings by now."""
        state, now = outlook.state, outlook.now
        again = state is not self._of or state.version < self._version
        if again or not self._at <= now < self._at + self.EVERY_SEC:
            self._of, self._version, self._at = state, state.version, now
            self._findings = diagnose(outlook)
        return self._findings
