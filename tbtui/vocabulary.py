"""Names and limits that the settings, the algorithm, the journal and the views share.

Nothing is imported here that takes time: the app's first frame is painted with these.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Literal

TERMINAL_AGENTS = ("terminus-2", "shell")
"""The agents whose turns are commands in a trial's own terminal, run by this program itself: their
trials are typed in, forked and written to. All others are programs in the sandbox."""

MAX_REWARD = 1e6
"""The largest reward, and the smallest with its sign turned, that is one. No verifier means more;
sums of squares of what is beyond overflow, and a policy that is trained on one such reward is lost.
"""


def is_reward(value: float) -> bool:
    """Whether a number can be a reward: finite, and not beyond `MAX_REWARD`."""
    return abs(value) <= MAX_REWARD


def all_equal(rewards: Collection[float]) -> bool:
    """Whether a group's rewards say nothing of its trials, because none differs from another.

    Those that differ by rounding alone are equal: within a billionth of the larger one, and within
    1e-12 of zero.
    """
    if not rewards:
        return True
    low, high = min(rewards), max(rewards)
    return high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-12)


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

Purpose = Literal["train", "eval", "fork", "probe"]
"""What trials are for; forks that people ask for are tried, and never trained on."""
CommandVerb = Literal[
    "pause", "freeze", "resume", "stop", "cancel", "retry", "exclude", "include", "accept",
    "relabel", "refill", "take_over", "type", "give_back", "set", "take", "fork", "message"
]  # fmt: skip
"""What people, scripts and rules may ask; `journal/verbs.py` says of what, and when."""

OutageKind = Literal[
    "policy",  # its server is paused, out of reach, or answers nobody
    "storage",  # the run directory can't be written, or has hardly any room
    "sleep",  # nothing ran: the machine was suspended, or the process stopped
]

LossName = Literal["importance_sampling", "ppo", "cispo", "gspo", "dro"]
"""See `algorithm/losses.py`."""

Advantage = Literal["centred", "std", "leave_one_out", "batch"]
"""See `algorithm/advantages.py`."""

Normalizer = Literal["token", "sequence", "trial", "sum"]
"""What a batch's loss is divided by."""

TaskSampling = Literal["uniform", "learnability", "thompson"]
"""How the tasks of a batch are chosen: see `algorithm/curriculum.py`."""

BudgetUnit = Literal["dollars", "hours", "rollouts", "tokens"]
"""What a run's budget counts."""

UNTRIED_SHARE = 0.5
"""Share of the draws by weight that are of untried tasks, while there are any."""

TASK_HALF_LIFE = 15.0
"""Optimiser steps after which a group's rewards count half in what is believed of its task, unless
the settings say otherwise."""

Disposition = Literal["trained", "constant", "short"]
"""What becomes of a group. `constant`: all rewards equal, nothing to learn; `short`: too few
members left."""

Schedule = Literal["constant", "linear", "cosine"]
"""How the learning rate changes: see `engines/grpo/plan.py`."""


def is_paced(step: int, purpose: Purpose) -> bool:
    """Whether a batch is one of a run's first, which `pace_sec` slows down: the evaluation before
    training, or step 1."""
    return step < 1 or (step == 1 and purpose == "train")
