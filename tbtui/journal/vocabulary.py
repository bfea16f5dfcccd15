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
    """All trials of the step are over; somebody is to look at them before it is trained."""
    TRAINING = "training"
    SAVING = "saving"
    STOPPING = "stopping"
    FINISHED = "finished"


Purpose = Literal["train", "eval"]
CommandVerb = Literal[
    "pause",  # at the next turn boundary
    "freeze",  # now, the sandbox's processes too
    "resume",
    "stop",  # at the next turn boundary, then verify
    "cancel",  # now, without verdict
    "retry",  # give this attempt up and fill its place in the group with a fresh one
    "exclude",  # leave it out of training and of its group's baseline
    "include",  # take an exclusion back
    "take_over",  # a person types in its terminal, from the next turn boundary on
    "type",  # `arguments` say what (`journal.typed`)
    "give_back",  # to the agent, which goes on; with `stay` in `arguments` it stays paused
    "accept",  # the step under review: train on it as it stands
    "relabel",  # give a trial another reward (`arguments`: `reward`; None: the verifier's again)
    "refill",  # fresh trials in place of a group's members that are left out; the target is a group
    "set",  # change settings of the live run; `arguments` are their names and values
    "take",  # the controls: nobody else's commands are carried out
]

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
