"""Names and limits that the settings, the algorithm, the journal and the views share."""

from __future__ import annotations

from typing import Literal

LossName = Literal["importance_sampling", "ppo", "cispo", "gspo", "dro"]
"""See `algorithm/losses.py`."""

Advantage = Literal["centred", "std", "leave_one_out", "batch"]
"""See `algorithm/advantages.py`."""

Normalizer = Literal["token", "sequence", "trial", "sum"]
"""What a batch's loss is divided by."""

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
"""See `algorithm/alarms.py`."""

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
