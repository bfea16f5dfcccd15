"""A trial as training has it: its plan, and the rollout that came of it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.segments import Call
from tbtui.catalog.tasks import TaskInfo
from tbtui.engines.grpo.origins import Origin
from tbtui.journal.events import Outcome, PhaseSeconds, Purpose, TrialFinished
from tbtui.sampling import SamplingParams


def derive_seed(*parts: object) -> int:
    """Derive a seed of 63 bits from every part and from nothing else."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """One place in a group. A retry fills the same place again, as the next attempt."""

    task: TaskInfo
    group: str
    index: int
    """Within the group, from 1."""
    step: int
    purpose: Purpose
    sampling: SamplingParams
    seed: int
    group_draws: tuple[object, ...]
    """What the seeds of the whole group derive from."""
    origin: Origin | None = None
    """The turn of another trial at which it begins; what it shares with that is never trained."""
    agent: str = ""
    """In place of the run's; empty: the run's."""

    @property
    def key(self) -> tuple[str, int]:
        """The place: the same for all attempts at it."""
        return self.group, self.index

    @property
    def label(self) -> str:
        return f"{self.task.name}/{self.index}"

    def trial_id(self, attempt: int) -> str:
        retry = f"-retry{attempt - 1}" if attempt > 1 else ""
        return f"{self.group}-{self.index}{retry}"

    def again(self, attempt: int) -> TrialPlan:
        """The plan with other draws from this attempt on; they don't depend on earlier retries."""
        first = trial_plan(self, self.index)
        return dataclasses.replace(self, seed=derive_seed(first.seed, "again", attempt))


def trial_plan(sibling: TrialPlan, index: int) -> TrialPlan:
    """The place number `index` in the group of `sibling`, with draws of its own."""
    seed = derive_seed(*sibling.group_draws, index)
    return dataclasses.replace(sibling, index=index, seed=seed)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    group: str
    task: TaskInfo
    trials: tuple[TrialPlan, ...]


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
    ended_at: float = field(default=0.0, kw_only=True)
    """In seconds since the epoch; 0 in older journals."""
    spent: PhaseSeconds
    """Where the time went, of all attempts; waiting to try again is time in the queue."""
    tokens: Tokens = field(default_factory=Tokens)
    """What the sampler read and wrote, of all attempts: given up or not, they are billed."""
    verdict: float | None = None
    """What the verifier said, untouched; None when there is no verdict."""
    earned: float | None = None
    """What that would be worth to the policy, whatever a person did in the trial."""
    verifier_output: str = ""
    verifying_sec: float = 0.0
    """How long the verifier took, in the last attempt."""
    commands: tuple[str, ...] = ()
    """Keystrokes that the agent sent, in order, of the last attempt."""
    excluded: bool = False
    """A person or a rule has left it out of training."""

    @classmethod
    def of(
        cls,
        plan: TrialPlan,
        attempt: int,
        end: TrialFinished,
        calls: Iterable[Call],
        commands: Iterable[str],
        spent: PhaseSeconds,
        tokens: Tokens,
    ) -> Rollout:
        """The rollout of attempt number `attempt`, with the end that the journal has.

        `spent` and `tokens`: of all attempts.
        """
        return cls(
            plan=plan,
            trial=end.trial,
            attempt=attempt,
            outcome=end.outcome,
            reason=end.reason,
            reward=end.reward,
            calls=tuple(calls),
            turns=end.turns,
            seconds=end.seconds.total - end.seconds.queue,
            ended_at=end.ended_at,
            spent=spent,
            tokens=tokens,
            verdict=end.verdict,
            earned=end.verdict if end.earned is None else end.earned,
            verifier_output=end.verifier_output,
            verifying_sec=end.seconds.verifying,
            commands=tuple(commands),
        )
