"""What each outcome leads to (trained on, left out, tried again, the run's end), and each alarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tbtui.algorithm.alarms import ALARMS, Alarm, AlarmDetector, AlarmName, HeldOutResult
from tbtui.catalog.tasks import nearest
from tbtui.config import AlarmAction, ConfigError
from tbtui.journal.events import AlarmRaised, EvalFinished, StepFinished
from tbtui.outcomes import INFRASTRUCTURE, Outcome, OutcomeAction

# There is no reward in these that anybody could train on.
_NEVER_TRAINED = INFRASTRUCTURE | {Outcome.CANCELLED}


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
        if action == "train" and outcome in _NEVER_TRAINED:
            raise ConfigError(
                f"on_outcome.{name}=train: {outcome.meaning}, which is no reward;"
                " choose mask, retry or halt"
            )
        actions[outcome] = action
    return OutcomePolicy(MappingProxyType(actions))


AlarmActions = Mapping[AlarmName, AlarmAction]

ALARM_MEANINGS: Mapping[AlarmName, str] = MappingProxyType(
    {
        "reward_collapse": "the mean reward fell well below its recent best",
        "logprob_collapse": "the policy is certain of every token, or of none",
        "sampler_mismatch": "sampler and trainer disagree about the same tokens",
        "no_signal": "for several steps no group had anything to teach",
        "below_base": "held-out tasks are solved less often than before training",
        "reward_hacking": "the reward jumped while trials became much shorter",
        "truncated": "most trials were cut off at max_tokens, or filled their context",
        "honeypot": "a trial passed an impossible task (honeypots)",
    }
)

PUBLICATION_ALARM: AlarmName = "sampler_mismatch"
"""Raised, too, where published weights don't reach the sampler (`publications.py`)."""
PUBLICATION_ACTION: AlarmAction = "pause"
"""What that leads to unless `on_alarm` has the alarm: every later step would be wrong as well."""


def alarm_actions(exceptions: Mapping[str, AlarmAction]) -> AlarmActions:
    """`warn` for every alarm but the `exceptions` (name -> action).

    Raises:
        ConfigError: an unknown alarm.
    """
    actions: dict[AlarmName, AlarmAction] = dict.fromkeys(ALARMS, "warn")
    known = {str(name): name for name in ALARMS}
    for name, action in exceptions.items():
        if name not in known:
            raise ConfigError(f"on_alarm.{name}: no such alarm{nearest(name, list(known))}")
        actions[known[name]] = action
    return MappingProxyType(actions)


class AlarmWatch:
    """Raises alarms over a run's steps and evaluations, which it sees in the journal's order.

    For a resumed run it sees those of the journal first; what they raised was journalled then.
    """

    def __init__(self, actions: AlarmActions) -> None:
        self._actions = actions
        self._watch = AlarmDetector()

    def see(self, event: StepFinished | EvalFinished) -> list[AlarmRaised]:
        """The alarms that this event raises, those that are off left out."""
        if isinstance(event, StepFinished):
            alarms = self._watch.step(event.step, event.metrics)
        else:
            passed = (event.pass_rate or 0.0) * event.scored
            alarms = self._watch.evaluation(
                HeldOutResult(event.step, passed, event.scored, event.temperature)
            )
        return [raised for alarm in alarms if (raised := self._raised(alarm)) is not None]

    def _raised(self, alarm: Alarm) -> AlarmRaised | None:
        action = self._actions[alarm.name]
        if action == "off":
            return None
        return AlarmRaised(
            alarm=alarm.name,
            step=alarm.step,
            text=alarm.text,
            numbers=alarm.numbers,
            action=action,
        )
