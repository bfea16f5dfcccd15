"""What each outcome leads to: trained on, left out, tried again, or the end of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tbtui.catalog.tasks import nearest
from tbtui.config import ConfigError
from tbtui.outcomes import INFRASTRUCTURE, Outcome, OutcomeAction

# There is no reward in these that anybody could train on.
_NEVER_TRAINED = INFRASTRUCTURE | {Outcome.CANCELLED}


@dataclass(frozen=True, slots=True)
class OutcomePolicy:
    """The table in force."""

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
