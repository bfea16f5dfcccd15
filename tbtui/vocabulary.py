"""Names and limits that the settings, the algorithm, the journal and the views share.

Nothing is imported here that takes time: the app's first frame is painted with these.
"""

from __future__ import annotations

import re
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

Purpose = Literal["train", "eval", "fork"]
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

Advantage = Literal["centred", "std", "leave_one_out", "batch", "turn_value"]
"""See `algorithm/advantages.py`."""

GroupFrom = Literal["task", "fork"]
"""See `algorithm/fork_groups.py`."""

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
    "honeypot",
]
"""See `algorithm/alarms.py`; the last is of `engines/honeypots.py`."""

# From which values on training looks wrong: `algorithm/alarms.py` and `view/diagnosis` compare with
# these. "Measured" is the embedded policy on the starter tasks.

COLLAPSED_NEGATIVE_LOGPROB = 0.01
"""Mean -log p, nats per token, below which nothing is left to explore: tokens of .99 and more.
Healthy runs, measured, end at .05 to .1; the end of learning comes with the end of entropy (Cui et
al. 2025, arXiv 2505.22617)."""

MISMATCH_KL = 0.01
"""Nats per token between sampler and trainer with the same weights: training is stable below it
(Tinker's documentation). The embedded policy's is 1e-12."""
MISMATCH_KL_STALE = 0.1
"""The same where the sampler's weights are older: well outside PPO's usual .01 to .05 a step."""


def is_paced(step: int, purpose: Purpose) -> bool:
    """Whether a batch is one of a run's first, which `pace_sec` slows down: the evaluation before
    training, or step 1."""
    return step < 1 or (step == 1 and purpose == "train")
