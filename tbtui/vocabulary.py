"""Names that the settings, the algorithm and the journal share."""

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
