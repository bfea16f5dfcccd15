"""The words of a run's events, by themselves: what a view needs before there is any event.

Nothing is imported here that takes time: the app's first frame is painted with these.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Literal

from tbtui.vocabulary import AlarmName as AlarmName
from tbtui.vocabulary import SuspectName as SuspectName

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


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers within names as numbers: `append-2` before `append-10`."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


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


PUBLISHING = "publishing"
"""Detail of the training phase from when the step's weights are handed to the sampler."""

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
