"""The words of a run's events, by themselves: what a view needs before there is any event.

Nothing is imported here that takes time: the app's first frame is painted with these.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

MAX_REWARD = 1e6
"""The largest reward, and the smallest with its sign turned, that is one. No verifier means more;
sums of squares of what is beyond overflow, and a policy that is trained on one such reward is lost.
"""


def is_reward(value: float) -> bool:
    """Whether a number can be a reward: finite, and not beyond `MAX_REWARD`."""
    return abs(value) <= MAX_REWARD


def category_of(kind: str | None, category: str | None) -> str:
    """The category that a task is listed under, from the `kind` and `category` of its metadata.

    The kind goes first: it is the finer one where a task has both.
    """
    return kind or category or "other"


class Outcome(StrEnum):
    """How a trial ended. Only the policy's own doing may ever be trained on."""

    SOLVED = "solved"
    FAILED = "failed"
    AGENT_TIMEOUT = "agent_timeout"
    """Out of time or out of turns before the agent said that it was done."""
    CONTEXT_OVERFLOW = "context_overflow"
    OUTPUT_TRUNCATED = "output_truncated"
    PARSE_ERROR = "parse_error"
    AGENT_ERROR = "agent_error"
    SETUP_ERROR = "setup_error"
    SANDBOX_LOST = "sandbox_lost"
    VERIFIER_ERROR = "verifier_error"
    PROVIDER_ERROR = "provider_error"
    CANCELLED = "cancelled"
    HUMAN_TOUCHED = "human_touched"


class TrialPhase(StrEnum):
    """What a trial is doing now."""

    QUEUED = "queued"
    SETUP = "setup"
    """The sandbox is being made, the agent is being installed."""
    MODEL = "model"
    """Waiting for the policy's next completion."""
    ACTING = "acting"
    """Commands are running in the terminal."""
    PAUSED = "paused"
    VERIFYING = "verifying"
    TEARDOWN = "teardown"
    FINISHED = "finished"


class RunPhase(StrEnum):
    """What the whole run is doing now."""

    STARTING = "starting"
    EVALUATING = "evaluating"
    SAMPLING = "sampling"
    REVIEWING = "reviewing"
    """All trials of the step are over; it waits for a review before it is trained."""
    TRAINING = "training"
    SAVING = "saving"
    STOPPING = "stopping"
    FINISHED = "finished"


Purpose = Literal["train", "eval"]
CommandVerb = Literal[
    "pause", "freeze", "resume", "stop", "cancel", "retry", "exclude", "include", "accept",
    "relabel", "refill", "take_over", "type", "give_back", "set", "take"
]  # fmt: skip
"""What people, scripts and rules may ask; `journal/verbs.py` says of what, and when."""

OutageKind = Literal[
    "policy",  # its server is paused, out of reach, or answers nobody
    "storage",  # the run directory can't be written, or has hardly any room
    "sleep",  # nothing ran: the machine was suspended, or the process stopped
]

SuspectName = Literal[
    "infrastructure_zero",  # the machinery failed it, and it counts as a failure
    "unverified",  # a reward, and no verifier ran
    "instant_verifier",  # it took next to no time, compared with its siblings' verifiers
    "tests_skipped",  # the verifier says that it skipped tests, or found none
    "flaky_verdict",  # a sibling said the same, token for token, and got another reward
    "no_commands",  # a reward for doing nothing
    "few_turns",  # solved in far fewer turns than siblings need
    "tests_touched",  # its commands name the verifier's own files
    "human_touched",  # a person typed in its terminal
]
"""Why a trial's reward may not be what it seems: see `algorithm/suspects.py`."""

AlarmName = Literal[
    "reward_collapse",
    "logprob_collapse",
    "sampler_mismatch",
    "no_signal",
    "below_base",
    "reward_hacking",
    "truncated",
]
