"""How a trial can end: every outcome with what it means and what it leads to.

`rollout/outcome.py` decides which one a trial has. Journals keep the texts: none is ever renamed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from tbtui.invocation import to_type

OutcomeAction = Literal["train", "mask", "retry", "halt"]
"""What is done with a trial for its outcome: `mask` leaves it out of its group's baseline too,
`retry` tries again and masks it when the attempts are used up, `halt` ends the run."""


class Outcome(StrEnum):
    """How a trial ended. Only the policy's own doing may ever be trained on.

    A member is its text, its default action, its meaning, and whether it is infrastructure's.
    """

    action: OutcomeAction
    """What it leads to where `on_outcome` names no other."""
    meaning: str
    """One line for a person."""
    infrastructure: bool
    """The machinery's doing, not the policy's: worth another attempt, never scored."""

    # With defaults, because a look-up by its text, `Outcome("solved")`, is a call too.
    def __new__(
        cls,
        text: str,
        action: OutcomeAction = "mask",
        meaning: str = "",
        infrastructure: bool = False,
    ) -> Outcome:
        member = str.__new__(cls, text)
        member._value_ = text
        member.action, member.meaning = action, meaning
        member.infrastructure = infrastructure
        return member

    SOLVED = "solved", "train", "the verifier passed it and the agent said that it was done"
    FAILED = (
        "failed",
        "train",
        "the agent said that it was done, or ended its terminal; not passed",
    )
    AGENT_TIMEOUT = (
        "agent_timeout",
        "train",
        "out of time, out of turns, or past the step's deadline",
    )
    CONTEXT_OVERFLOW = (
        "context_overflow",
        "train",
        "the conversation filled the model's context",
    )
    OUTPUT_TRUNCATED = "output_truncated", "train", "the last answer was cut off at max_tokens"
    PARSE_ERROR = "parse_error", "train", "out of turns, and the last answer could not be read"
    AGENT_ERROR = "agent_error", "retry", "the agent's own code failed", True
    SETUP_ERROR = "setup_error", "retry", "the sandbox or the agent could not be set up", True
    SANDBOX_LOST = (
        "sandbox_lost",
        "retry",
        "the sandbox, or the worker process that had it, died",
        True,
    )
    VERIFIER_ERROR = "verifier_error", "retry", "the verifier gave no usable verdict", True
    PROVIDER_ERROR = "provider_error", "retry", "the policy failed to answer", True
    REFUSED = "refused", "mask", "the model's server refused the prompt, or withheld its answer"
    TOO_SLOW = "too_slow", "mask", "the model was still answering when the trial's time was over"
    CANCELLED = "cancelled", "mask", "stopped or cancelled by a person, or no longer needed"
    HUMAN_TOUCHED = (
        "human_touched",
        "mask",
        "a person typed in its terminal, or wrote to its agent; the verdict is kept",
    )


INFRASTRUCTURE = frozenset(outcome for outcome in Outcome if outcome.infrastructure)

UNANSWERED = frozenset({Outcome.REFUSED, Outcome.TOO_SLOW})
"""A server that is up gave the trial no answer, and would give another attempt none: no reward."""

UNSCORED = INFRASTRUCTURE | UNANSWERED | {Outcome.CANCELLED}
"""There is no reward in these, whatever a verifier said."""


def advice(outcome: Outcome) -> str:
    """What to do where trials end so; empty for what is the policy's own work or a person's."""
    match outcome:
        case Outcome.CONTEXT_OVERFLOW:
            return "raise context_limit"
        case Outcome.OUTPUT_TRUNCATED:
            return "raise max_tokens"
        case Outcome.PARSE_ERROR:
            return "raise max_turns, or train longer before judging"
        case Outcome.AGENT_TIMEOUT:
            return "raise max_turns or trial_timeout_sec"
        case Outcome.VERIFIER_ERROR:
            return "try its own solution on it"
        case Outcome.SANDBOX_LOST:
            return "lower n_parallel_envs"
        case Outcome.SETUP_ERROR:
            return f"run {to_type('doctor')}"
        case Outcome.PROVIDER_ERROR:
            return "look at the model's server"
        case Outcome.REFUSED:
            return "read the reason; leave the task out, or use another model or server"
        case Outcome.TOO_SLOW:
            return "raise trial_timeout_sec, or lower max_tokens or n_parallel_envs"
        case Outcome.AGENT_ERROR:
            return "read a trial's trial.log"
        case _:
            return ""
