"""What all trials of a run have in common, and what a finished one is to training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.segments import Call
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, outcome_policy
from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.sampling import SamplingLimits
from tbtui.journal.events import Outcome, PhaseSeconds
from tbtui.rollout.messages import AgentName, CheckZeros, EnvironmentSpec, Keep


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """What all trials of a run have in common."""

    trials_dir: Path
    environment: EnvironmentSpec
    model_name: str
    max_turns: int
    trial_timeout_sec: float | None
    limits: SamplingLimits
    max_retries: int
    n_parallel: int
    outcomes: OutcomePolicy = field(default_factory=lambda: outcome_policy({}))
    retry_wait_sec: float = 0.0
    halt_after: int = 0
    sample_timeout_sec: float = 600.0
    starts_per_sec: float = 0.0
    keep: Keep = "all"
    agent: AgentName = "terminus-2"
    enable_summarize: bool = False
    proactive_summarization_threshold: int = 8_000
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
    """What the verifier said, untouched; None when it never spoke."""
    verifier_output: str = ""
    verifying_sec: float = 0.0
    """Of the last attempt."""
    commands: tuple[str, ...] = ()
    """Keystrokes that the agent sent, in order, of the last attempt."""
