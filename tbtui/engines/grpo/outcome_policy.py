"""What each outcome leads to (trained on, left out, tried again, the run's end), and each alarm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tbtui.algorithm.alarms import AlarmDetector, HeldOutResult
from tbtui.catalog import nearest
from tbtui.config import AlarmAction, ConfigError
from tbtui.findings import Finding, Rule, Severity
from tbtui.journal.events import AlarmRaised, EvalFinished, StepFinished
from tbtui.outcomes import UNSCORED, Outcome, OutcomeAction
from tbtui.sampling import SamplingSettings


@dataclass(frozen=True, slots=True)
class OutcomePolicy:
    """Outcome -> action: the table in force."""

    actions: Mapping[Outcome, OutcomeAction]

    def __getitem__(self, outcome: Outcome) -> OutcomeAction:
        return self.actions[outcome]

    def warnings(self) -> Iterator[str]:
        """What a person should know about their exceptions to the table."""
        for outcome, action in self.actions.items():
            if action == "retry" and outcome.action == "train":
                yield (
                    f"on_outcome.{outcome}=retry: drawing again until the policy does better"
                    " makes it look better than it is; the groups are biased"
                )

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """(outcome, action, meaning), an action that is not the default marked with `*`."""
        for outcome in Outcome:
            action = self.actions[outcome]
            yield outcome.value, action + "*" * (action != outcome.action), outcome.meaning


def outcome_policy(exceptions: Mapping[str, OutcomeAction]) -> OutcomePolicy:
    """The default table with `exceptions` (outcome name -> action).

    Raises:
        ConfigError: an unknown outcome, or training on one that never has a reward.
    """
    actions = {outcome: outcome.action for outcome in Outcome}
    names = [outcome.value for outcome in Outcome]
    for name, action in exceptions.items():
        if name not in names:
            raise ConfigError(
                f"on_outcome.{name}: no such outcome{nearest(name, names)}; there are"
                f" {', '.join(names)}"
            )
        outcome = Outcome(name)
        if action == "train" and outcome in UNSCORED:
            raise ConfigError(
                f"on_outcome.{name}=train: {outcome.meaning}, which is no reward;"
                " choose mask, retry or halt"
            )
        actions[outcome] = action
    return OutcomePolicy(MappingProxyType(actions))


def alarm_action(
    rule: Rule, exceptions: Mapping[str, AlarmAction], severity: Severity = "costs"
) -> AlarmAction:
    """What an alarm leads to: what `on_alarm` says, else the run is paused where it is blocked."""
    default: AlarmAction = "pause" if severity == "blocks" else "warn"
    return exceptions.get(rule, default)


def alarm_of(finding: Finding, exceptions: Mapping[str, AlarmAction]) -> AlarmRaised | None:
    """The alarm of a finding; None where it is off."""
    action = alarm_action(finding.rule, exceptions, finding.severity)
    if action == "off":
        return None
    return AlarmRaised(
        alarm=finding.rule,
        step=finding.step,
        text=finding.text,
        numbers={name: value for name, value in finding.numbers.items() if math.isfinite(value)},
        action=action,
        trial=next(iter(finding.trials), ""),
    )


class AlarmWatch:
    """Raises alarms over a run's steps and evaluations, which it sees in the journal's order.

    For a resumed run it sees those of the journal first; what they raised was journalled then.
    """

    def __init__(self, exceptions: Mapping[str, AlarmAction], sampling: SamplingSettings) -> None:
        """`exceptions`: `on_alarm`."""
        self._exceptions = exceptions
        self._watch = AlarmDetector(sampling)

    def see(self, event: StepFinished | EvalFinished) -> list[AlarmRaised]:
        """The alarms that this event raises, those that are off left out."""
        if isinstance(event, StepFinished):
            found = self._watch.step(event.step, event.metrics)
        else:
            passed = (event.pass_rate or 0.0) * event.scored
            found = self._watch.evaluation(
                HeldOutResult(event.step, passed, event.scored, event.temperature)
            )
        return [alarm for each in found if (alarm := alarm_of(each, self._exceptions))]
