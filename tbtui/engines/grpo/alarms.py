"""What each alarm leads to, and the journal's events turned into alarms."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tbtui.algorithm.alarms import ALARMS, Alarm, AlarmName, Evaluation, Watch
from tbtui.catalog.tasks import nearest
from tbtui.config import AlarmAction, ConfigError
from tbtui.journal.events import AlarmRaised, EvalFinished, StepFinished

AlarmActions = Mapping[AlarmName, AlarmAction]

MEANINGS: Mapping[AlarmName, str] = MappingProxyType(
    {
        "reward_collapse": "the mean reward fell well below its recent best",
        "logprob_collapse": "the policy is certain of every token, or of none",
        "sampler_mismatch": "sampler and trainer disagree about the same tokens",
        "no_signal": "for several steps no group had anything to teach",
        "below_base": "held-out tasks are solved less often than before training",
        "reward_hacking": "the reward jumped while trials became much shorter",
        "truncated": "most trials were cut off at max_tokens, or filled their context",
    }
)


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
    """Sees a run's steps and evaluations in the journal's order.

    For a resumed run it is shown those of the journal first; what it says of them was said then.
    """

    def __init__(self, actions: AlarmActions) -> None:
        self._actions = actions
        self._watch = Watch()

    def see(self, event: StepFinished | EvalFinished) -> list[AlarmRaised]:
        """The alarms that this event raises, those that are off left out."""
        if isinstance(event, StepFinished):
            alarms = self._watch.step(event.step, event.metrics)
        else:
            passed = (event.pass_rate or 0.0) * event.scored
            alarms = self._watch.evaluation(
                Evaluation(event.step, passed, event.scored, event.temperature)
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
