"""Looks for suspects among the trials of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.algorithm.suspects import ExaminedTrial, suspects
from tbtui.engines.grpo.places import BatchGroup
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.events import Outcome, Suspicion


def suspicions(groups: Sequence[BatchGroup]) -> dict[str, tuple[Suspicion, ...]]:
    """Trial -> what is odd about it, by its verdict; what was decided since has no part in it."""
    return {
        trial: tuple(Suspicion(suspect=suspect, why=why) for suspect, why in found)
        for group in groups
        for trial, found in suspects([examined(rollout) for rollout in group.members()]).items()
    }


def examined(rollout: Rollout) -> ExaminedTrial:
    return ExaminedTrial(
        trial=rollout.trial,
        outcome_is_infrastructure=rollout.outcome.infrastructure,
        human_touched=rollout.outcome is Outcome.HUMAN_TOUCHED,
        reward=rollout.reward,
        verdict=rollout.verdict,
        turns=rollout.turns,
        verifying_sec=rollout.verifying_sec,
        commands=rollout.commands,
        verifier_output=rollout.verifier_output,
        completions=tuple(call.completion_ids for call in rollout.calls),
    )
