"""What all trials of a run have in common, and what a finished one is to training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.segments import Call
from tbtui.config import RunConfig
from tbtui.engines.grpo.outcome_policy import OutcomePolicy
from tbtui.engines.grpo.plan import TrialPlan
from tbtui.journal.events import Outcome, PhaseSeconds
from tbtui.rollout.messages import CheckZeros, EnvironmentSpec


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """What all trials of a run have in common: its settings, and what follows from them once the
    run is prepared and the policy has started."""

    config: RunConfig
    outcomes: OutcomePolicy
    trials_dir: Path
    environment: EnvironmentSpec
    model_name: str
    context_limit: int
    """Tokens of the model's context."""
    check_zeros: CheckZeros = "faults"
    kill_before_verifying: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished trial, as training needs it. `reward` None: it has no part in its group."""

    plan: TrialPlan
    trial: str
    attempt: int
    outcome: Outcome
    reason: str
    reward: float | None
    calls: tuple[Call, ...]
    turns: int
    seconds: float
    """Wall time on a worker, of the last attempt."""
    spent: PhaseSeconds
    """Where the time went, of all attempts; waiting to try again is time in the queue."""
    tokens: Tokens = field(default_factory=Tokens)
    """What the sampler read and wrote, of all attempts: given up or not, they are billed."""
    verdict: float | None = None
    """What the verifier said, untouched; None when there is no verdict."""
    verifier_output: str = ""
    verifying_sec: float = 0.0
    """How long the verifier took, in the last attempt."""
    commands: tuple[str, ...] = ()
    """Keystrokes that the agent sent, in order, of the last attempt."""
