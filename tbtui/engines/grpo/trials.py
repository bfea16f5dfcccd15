"""Runs the trials of a step: retries what infrastructure broke, and lets the policy answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import override

from tbtui.algorithm.costs import Tokens, sampled_tokens
from tbtui.algorithm.evaluation import PASS_REWARD
from tbtui.config import RunConfig
from tbtui.engines.awaiting import comes_before
from tbtui.engines.grpo.completions import Asker, Completions
from tbtui.engines.grpo.failures import FailureStreak, HaltError, UnusableTasks, retry_wait
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, alarm_actions
from tbtui.engines.grpo.pausing import Outages
from tbtui.engines.grpo.recorded import POLICY_LOST_FIRST, RUN_ENDED_FIRST, cut_off
from tbtui.engines.grpo.rollouts import Rollout, TrialPlan
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.engines.honeypots import alarm as honeypot_alarm
from tbtui.engines.pacing import Pacer
from tbtui.engines.trials.admission import Admission
from tbtui.engines.trials.attempts import Attempt, Place, TrialEnd
from tbtui.engines.trials.running import RunningTrials
from tbtui.engines.trials.steering import Pool
from tbtui.journal.events import (
    AlarmRaised,
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialQueued,
    TrialRetried,
)
from tbtui.journal.writer import JournalWriter
from tbtui.outcomes import OutcomeAction
from tbtui.policies.base import (
    ContextOverflowError,
    Policy,
    PolicyDeniedError,
    PolicyError,
    PolicyLostError,
    Sample,
    SampleRequest,
)
from tbtui.rollout.forking import SnapshotPlan
from tbtui.rollout.messages import (
    CheckZeros,
    Completion,
    CompletionDelayed,
    CompletionFailed,
    Demonstrated,
    EndpointSpec,
    EnvironmentSpec,
    SampleWanted,
    TrialSpec,
)

_LARGEST_SHARE = 0.8
"""Share of the agent's budget that one completion may take."""

_LEAST_BUDGET_SEC = 1.0
"""What a fork has whose parent had spent all by then."""

KeepDemonstration = Callable[[TrialPlan, Demonstrated, tuple[int, ...], str], None]
"""Called with a trial's plan, what was typed in it, the prompt in whose place that was, and who
typed."""

StorageCheck = Callable[[], Awaitable[bool]]
"""Whether the run directory is out of order now."""


def _keep_none(plan: TrialPlan, message: Demonstrated, prompt: tuple[int, ...], who: str) -> None:
    """Keep nothing: the settings want no demonstrations."""


async def no_storage_check() -> bool:
    """The check of a run whose directory is not checked."""
    return False


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
    fixed_programs: bool = False


def _snapshot_plan(settings: TrialSettings, trial: str) -> SnapshotPlan | None:
    """Which states of a trial are kept."""
    config = settings.config
    if config.snapshots == "off":
        return None
    every = int(config.snapshots.partition("=")[2] or 1)
    directory = settings.trials_dir.parent / "snapshots" / trial
    return SnapshotPlan(directory, every, config.snapshot_mb << 20)


@dataclass(frozen=True, slots=True)
class _PolicyModel:
    """The policy, as the agent of one trial asks it."""

    trial: str
    plan: TrialPlan
    conversation: Conversation
    patience_sec: float
    """How long the policy may take for one completion."""
    completions: Completions
    pool: Pool
    pacer: Pacer
    held: Callable[[str], bool]
    """Whether a person holds a trial, or is about to."""
    keep: KeepDemonstration

    async def answer(self, wanted: SampleWanted) -> Completion | CompletionFailed:
        try:
            answer = await self.conversation.answer(
                wanted, lambda request: self._draw(wanted, request)
            )
        except (PolicyLostError, PolicyDeniedError):
            raise  # no trial's failure: every other one would get the same
        except ContextOverflowError as error:
            return CompletionFailed(
                wanted.request,
                "context_overflow",
                str(error),
                error.prompt_tokens,
                error.context_limit,
            )
        except PolicyError as error:
            return CompletionFailed(wanted.request, "provider_error", str(error))
        if wanted.count_only:
            return answer
        await self.pacer.hold(
            self.plan.step, self.plan.purpose, self._delay(wanted), lambda: self.held(self.trial)
        )
        return answer

    def abandoned(self, turn: int) -> None:
        self.conversation.abandoned(turn)

    def typed_in(self) -> None:
        self.conversation.typed_in()

    def demonstrated(self, message: Demonstrated, actor: str) -> None:
        self.keep(self.plan, message, self.conversation.prompt_of(message.messages), actor)

    def _delay(self, wanted: SampleWanted) -> Callable[[bool, float], None]:
        def delayed(delayed: bool, waited_sec: float) -> None:
            self.pool.delay(CompletionDelayed(wanted.request, delayed, waited_sec))

        return delayed

    async def _draw(self, wanted: SampleWanted, request: SampleRequest) -> Sample:
        place = f"{self.plan.group}-{self.plan.index}"
        asker = Asker(self.trial, place, wanted.turn, self.patience_sec, self._delay(wanted))
        return await self.completions.draw(asker, request, self.plan.seed)


class TrialRunner[P: Pool](RunningTrials[P]):
    """Runs at most `n_parallel` trials at once; each ends with a typed outcome, whatever happens.

    `settings.outcomes` says what an outcome leads to; earlier attempts are kept.
    """

    def __init__(
        self,
        settings: TrialSettings,
        policy: Policy,
        journal: JournalWriter,
        pool: Callable[[TrialRunner[P]], P],
        unusable: UnusableTasks | None = None,
        outages: Outages | None = None,
        storage: StorageCheck = no_storage_check,
    ) -> None:
        """
        Args:
            pool: makes the pool, as `RunningTrials` wants it.
            unusable: tasks that are known to be.
            storage: looks at once whether the run directory is in order, and begins an outage if
                it is not.
        """
        config = settings.config
        admission = Admission(config.n_parallel_envs, config.env_starts_per_sec)
        super().__init__(journal, admission, lambda _: pool(self))
        self.outages = outages or Outages(journal)
        self._check_storage = storage
        self.unusable = unusable or UnusableTasks(journal)
        self._settings = settings
        self._policy = policy
        self._journal = journal
        self._streak = FailureStreak(config.halt_after)
        self.completions = Completions(
            policy, journal, self.outages, config.retry_wait_sec, config.sample_timeout_sec
        )
        self.raise_alarm: Callable[[AlarmRaised], object] = journal.append
        """Called with the alarm of a trial; an engine sees to what the alarm leads to."""
        self.keep_demonstration: KeepDemonstration = _keep_none
        """An engine keeps demonstrations, if the settings want it."""
        self._pacer = Pacer(config.pace_sec)
        self._turns = LoopTurns()
        self._cut_off_by = RUN_ENDED_FIRST

    def change(self, config: RunConfig) -> None:
        """Use other settings from now on; what has begun ends as it began."""
        self._settings = dataclasses.replace(self._settings, config=config)
        self.completions.retry_wait_sec = config.retry_wait_sec
        self.completions.patience_sec = config.sample_timeout_sec
        self._pacer.change(config.pace_sec)
        self._admission.change(config.n_parallel_envs, config.env_starts_per_sec)

    async def run(
        self, place: Place[TrialPlan], attempt: int = 1, consumed: Tokens | None = None
    ) -> Rollout:
        """Attempt the trial of a place, from attempt number `attempt` on, until its outcome stands.

        `consumed`: by the attempts before.

        Raises:
            HaltError: its outcome ends the run.
            PolicyLostError: the policy was lost under it, or under another trial.
            PolicyDeniedError: its server takes no requests from us any more.
        """
        settings = self._settings
        plan = current = place.plan
        retries, spent, tokens = 0, PhaseSeconds(), consumed or Tokens()
        while True:
            rollout, end = await self._attempt(place, current, attempt, spent, tokens)
            spent, tokens = rollout.spent, rollout.tokens
            broken = rollout.outcome.infrastructure
            outage = broken and await self.in_outage()
            if broken and not outage:
                self._count_failure(rollout, end)
            if (asked := place.again) is not None:
                place.again, why, wait = None, asked, 0.0
                current = plan.again(attempt + 1)
            elif outage and plan.task.name not in self.unusable and not place.final.is_set():
                why, wait = str(rollout.outcome), 0.0
                await self._outage_over(place)
            elif (
                settings.outcomes[rollout.outcome] != "retry"
                or retries >= settings.config.max_retries
                or plan.task.name in self.unusable
            ):
                return rollout
            else:
                retries += 1
                why = str(rollout.outcome)
                wait = retry_wait(settings.config.retry_wait_sec, retries, plan.seed)
            if place.final.is_set():
                return rollout
            attempt += 1
            self._journal.append(
                TrialRetried(
                    trial=rollout.trial,
                    successor=plan.trial_id(attempt),
                    reason=why,
                    wait_sec=wait,
                )
            )
            if wait:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(place.final.wait(), wait)
                spent = spent + PhaseSeconds(queue=wait)

    async def in_outage(self) -> bool:
        """Whether what failed just now may be an outage's doing."""
        return self.outages.on or await self._check_storage()

    async def _outage_over(self, place: Place[TrialPlan]) -> None:
        """Wait until everything is in order, or no further attempt is wanted."""
        final = asyncio.ensure_future(place.final.wait())
        try:
            await comes_before(self.outages.over(), final)
        finally:
            final.cancel()

    async def _attempt(
        self,
        place: Place[TrialPlan],
        plan: TrialPlan,
        number: int,
        spent: PhaseSeconds,
        tokens: Tokens,
    ) -> tuple[Rollout, TrialEnd]:
        trial = plan.trial_id(number)
        budget = self._settings.config.trial_timeout_sec or plan.task.agent_timeout_sec
        point = plan.origin.point if plan.origin is not None else None
        if point is not None:
            budget = max(_LEAST_BUDGET_SEC, budget - point.spent_sec)
        self._journal.append(
            TrialQueued(
                trial=trial,
                label=plan.label,
                task=plan.task.name,
                group=plan.group,
                step=plan.step,
                purpose=plan.purpose,
                attempt=number,
                budget_sec=budget,
                parent=point.trial if point is not None else "",
                fork_turn=point.turn if point is not None else 0,
            )
        )
        model = self._model(trial, plan, budget)
        attempt = Attempt(trial, plan.step, model)
        try:
            end = await self.run_attempt(place, attempt, self._spec(plan, trial, budget))
        except (asyncio.CancelledError, PolicyLostError, PolicyDeniedError):
            self._journal.append(cut_off(trial, self._cut_off_by))
            self.steering.over(trial, Outcome.CANCELLED)
            raise
        finally:
            self._journal.forget(trial)
        calls = model.conversation.calls
        action = self._settings.outcomes[end.decision.outcome]
        if plan.task.impossible and (end.decision.verdict or 0.0) >= PASS_REWARD:
            self._honeypot_passed(trial, plan)
            action = "mask"
        # What is left out of training still counts when the policy is evaluated, if the policy
        # did it.
        alone = end.decision.outcome is not Outcome.HUMAN_TOUCHED
        scored = action == "train" or (plan.purpose != "train" and alone)
        finished = end.event(attempt, end.decision.reward if scored else None, len(calls))
        self._finish(plan, finished, action)
        spent, tokens = spent + finished.seconds, tokens + sampled_tokens(calls)
        return Rollout.of(plan, number, finished, calls, attempt.keystrokes, spent, tokens), end

    def _model(self, trial: str, plan: TrialPlan, budget: float) -> _PolicyModel:
        conversation = Conversation(
            trial,
            plan.seed,
            plan.temperature,
            SamplingLimits(self._settings.context_limit, self._settings.config.max_tokens),
            self._policy,
            self._journal,
            self._turns,
            plan.origin,
        )
        # An answer that takes most of the budget is the server's slowness, not the policy's.
        patience = min(self._settings.config.sample_timeout_sec, _LARGEST_SHARE * budget)
        return _PolicyModel(
            trial,
            plan,
            conversation,
            patience,
            self.completions,
            self.pool,
            self._pacer,
            self.steering.is_held,
            self.keep_demonstration,
        )

    def _spec(self, plan: TrialPlan, trial: str, budget: float) -> TrialSpec:
        settings, config = self._settings, self._settings.config
        return TrialSpec(
            trial=trial,
            task_dir=plan.task.path,
            trials_dir=settings.trials_dir,
            environment=settings.environment,
            model_name=settings.model_name,
            max_turns=config.max_turns,
            budget_sec=budget,
            context_limit=settings.context_limit,
            max_tokens=config.max_tokens,
            keep=config.keep,
            agent="oracle" if self._scripted(plan) else config.agent,
            agent_kwargs=config.agent_kwargs,
            agent_install=config.agent_install or "",
            agent_setup_network=config.agent_setup_network,
            endpoint=EndpointSpec(config.endpoint_public_url, config.endpoint_port),
            enable_summarize=config.enable_summarize,
            proactive_summarization_threshold=config.proactive_summarization_threshold,
            # An impossible task's own solution earns nothing either, and that is as it should be.
            check_zeros="never" if plan.task.impossible else settings.check_zeros,
            kill_before_verifying=settings.kill_before_verifying,
            snapshots=_snapshot_plan(settings, trial),
            fixed_programs=settings.fixed_programs,
            origin=plan.origin.point if plan.origin is not None else None,
        )

    def _scripted(self, plan: TrialPlan) -> bool:
        """Whether the task's own solution acts, of those that are evaluated."""
        return plan.purpose == "eval" and plan.task.name in self._settings.config.oracle_tasks

    def _honeypot_passed(self, trial: str, plan: TrialPlan) -> None:
        action = alarm_actions(self._settings.config.on_alarm)["honeypot"]
        raised = honeypot_alarm(trial, plan.label, plan.step, action)
        if raised is not None:
            self.raise_alarm(raised)

    def _finish(self, plan: TrialPlan, end: TrialFinished, action: OutcomeAction) -> None:
        """Journal the end of an attempt.

        Raises:
            HaltError: its outcome ends the run.
        """
        outcome = end.outcome
        self._journal.append(end)
        self.steering.over(end.trial, outcome)
        if action == "halt":
            raise HaltError(f"{end.trial}: {outcome}: {end.reason} (on_outcome.{outcome}=halt)")
        self.unusable.tried(plan.task.name)
        if not outcome.infrastructure and outcome is not Outcome.CANCELLED:
            self._streak.worked()

    def _count_failure(self, rollout: Rollout, end: TrialEnd) -> None:
        """Count what infrastructure broke, in no outage, against the run or against the task.

        Raises:
            HaltError: it was one too many in a row.
        """
        outcome, reason, facts = rollout.outcome, rollout.reason, end.facts
        task, lasting = rollout.plan.task.name, end.decision.lasting
        if self._settings.outcomes[outcome] == "retry":
            if lasting:
                self.unusable.set_aside(task, reason)
            elif outcome is Outcome.SETUP_ERROR and facts:
                self.unusable.setup_failed(task, reason, facts.exception_message or "")
        incident = end.incident or (task if lasting else None)
        self._streak.failed(rollout.trial, outcome, reason, incident)

    @override
    def answer_failed(self, attempt: Attempt, error: BaseException) -> None:
        """Raise `error` where any trial is awaited: none can go on."""
        if isinstance(error, PolicyLostError):
            self.policy_lost()
        for each in self._attempts:
            each.fail(error)

    def policy_lost(self) -> None:
        """Note that the policy was lost: what trials that end from now on give as the reason."""
        self._cut_off_by = POLICY_LOST_FIRST
