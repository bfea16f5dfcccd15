"""What each outcome leads to: trained on, left out, tried again, or the end of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tbtui.catalog.tasks import nearest
from tbtui.config import ConfigError, OutcomeAction
from tbtui.journal.events import Outcome

DEFAULTS: Mapping[Outcome, OutcomeAction] = MappingProxyType(
    {
        Outcome.SOLVED: "train",
        Outcome.FAILED: "train",
        Outcome.AGENT_TIMEOUT: "train",
        Outcome.CONTEXT_OVERFLOW: "train",
        Outcome.OUTPUT_TRUNCATED: "train",
        Outcome.PARSE_ERROR: "train",
        Outcome.AGENT_ERROR: "retry",
        Outcome.SETUP_ERROR: "retry",
        Outcome.SANDBOX_LOST: "retry",
        Outcome.VERIFIER_ERROR: "retry",
        Outcome.PROVIDER_ERROR: "retry",
        Outcome.CANCELLED: "mask",
        Outcome.HUMAN_TOUCHED: "mask",
    }
)

MEANINGS: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.SOLVED: "the verifier passed it and the agent said that it was done",
        Outcome.FAILED: "the agent said that it was done, or ended its terminal; not passed",
        Outcome.AGENT_TIMEOUT: "out of time, out of turns, or past the step's deadline",
        Outcome.CONTEXT_OVERFLOW: "the conversation filled the model's context",
        Outcome.OUTPUT_TRUNCATED: "the last answer was cut off at max_tokens",
        Outcome.PARSE_ERROR: "out of turns, and the last answer could not be read",
        Outcome.AGENT_ERROR: "the agent's own code failed",
        Outcome.SETUP_ERROR: "the sandbox or the agent could not be set up",
        Outcome.SANDBOX_LOST: "the sandbox, or the worker process that had it, died",
        Outcome.VERIFIER_ERROR: "the verifier gave no usable verdict",
        Outcome.PROVIDER_ERROR: "the policy failed to answer",
        Outcome.CANCELLED: "stopped or cancelled by a person, or no longer needed",
        Outcome.HUMAN_TOUCHED: "a person typed in its terminal; the verdict is kept",
    }
)

# There is no reward in these that anybody could train on.
_NEVER_TRAINED = frozenset(outcome for outcome, action in DEFAULTS.items() if action == "retry") | {
    Outcome.CANCELLED
}


@dataclass(frozen=True, slots=True)
class OutcomePolicy:
    """The table in force."""

    actions: Mapping[Outcome, OutcomeAction]

    def __getitem__(self, outcome: Outcome) -> OutcomeAction:
        return self.actions[outcome]

    def warnings(self) -> Iterator[str]:
        """What a person should know about their exceptions to the table."""
        for outcome, action in self.actions.items():
            if action == "retry" and DEFAULTS[outcome] == "train":
                yield (
                    f"on_outcome.{outcome}=retry: drawing again until the policy does better"
                    " makes it look better than it is; the groups are biased"
                )

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """(outcome, action, meaning), an action that is not the default marked with `*`."""
        for outcome, meaning in MEANINGS.items():
            action = self.actions[outcome]
            yield outcome.value, action + "*" * (action != DEFAULTS[outcome]), meaning


def outcome_policy(exceptions: Mapping[str, OutcomeAction]) -> OutcomePolicy:
    """The default table with `exceptions` (outcome name -> action).

    Raises:
        ConfigError: an unknown outcome, or training on one that never has a reward.
    """
    actions = dict(DEFAULTS)
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
                f"on_outcome.{name}=train: {MEANINGS[outcome]}, which is no reward;"
                " choose mask, retry or halt"
            )
        actions[outcome] = action
    return OutcomePolicy(MappingProxyType(actions))
