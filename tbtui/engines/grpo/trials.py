"""Runs the trials of a step: retries what infrastructure broke, and lets the policy answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import override

from tbtui.algorithm.costs import Tokens, sampled_tokens
from tbtui.algorithm.evaluation import PASS_REWARD
from tbtui.catalog.load import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.awaiting import comes_before
from tbtui.engines.grpo.completions import Asker, Completions
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.demonstrations import DemonstrationKeeper
from tbtui.engines.grpo.examples import ScriptedTrials, example_spec
from tbtui.engines.grpo.failures import FailureStreak, HaltError, UnusableTasks, retry_wait
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, alarm_of
from tbtui.engines.grpo.pausing import Outages, RunPause
from tbtui.engines.grpo.recorded import POLICY_LOST_FIRST, RUN_ENDED_FIRST, cut_off
from tbtui.engines.grpo.rollouts import Rollout, TrialPlan
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.engines.grpo.storage_guard import StorageGuard
from tbtui.engines.honeypots import honeypot_finding
from tbtui.engines.pacing import Pacer
from tbtui.engines.trials.admission import Admission
from tbtui.engines.trials.attempts import Attempt, Place, TrialEnd
from tbtui.engines.trials.running import RunningTrials
from tbtui.engines.trials.steering import Pool, Steering
from tbtui.findings import Unusable, UnusableKind
from tbtui.journal.events import (
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialQueued,
    TrialRetried,
)
from tbtui.outcomes import UNSCORED, OutcomeAction
from tbtui.policies.base import (
    ContextOverflowError,
    PolicyDeniedError,
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
    PolicySlowError,
    Sample,
    SampleRequest,
    UnrenderableError,
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
    FromWorker,
    RewardChoice,
    SampleWanted,
    TrialFacts,
    TrialSpec,
)
from tbtui.rollout.outcome import short_reason
from tbtui.rollout.pool import WorkerId, WorkerLostInfo
from tbtui.rollout.shell_format import without_own
from tbtui.sampling import MODEL_ITSELF

_AGENT_FAILURES = 3
"""Trials whose agent can't be set up, and none that has worked, after which it is the agent's."""
_OUT_OF_TIME = "VerifierTimeoutError"
"""Harbor's, whose import would take seconds."""

_LEAST_BUDGET_SEC = 1.0
"""What a fork has whose parent had spent all by then."""


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
    examples: str = ""
    """Solved tasks that the agent's first prompt shows."""


def _never_verified(facts: TrialFacts) -> bool:
    """Whether the verifier failed in a way that is not for want of time, which differs by trial."""
    failed = facts.verdict is None and facts.failed_phase == "verifier"
    return failed and facts.exception_type != _OUT_OF_TIME


def _snapshot_plan(settings: TrialSettings, trial: str) -> SnapshotPlan | None:
    """Which states of a trial are kept."""
    config = settings.config
    if config.snapshots == "off":
        return None
    every = int(config.snapshots.partition("=")[2] or 1)
    directory = settings.trials_dir.parent / "snapshots" / trial
    return SnapshotPlan(directory, every, config.snapshot_mb << 20)


@dataclass(frozen=True, slots=True)
class _Answering:
    """What the models of all trials answer with."""

    completions: Completions
    pool: Pool
    pacer: Pacer
    steering: Steering
    demonstrations: DemonstrationKeeper


@dataclass(frozen=True, slots=True)
class _PolicyModel:
    """The policy, as the agent of one trial asks it."""

    plan: TrialPlan
    conversation: Conversation
    patience_sec: float
    """How long the policy may show no sign of work on a completion."""
    budget_sec: float
    shared: _Answering

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
                wanted.trial,
                "context_overflow",
                str(error),
                error.prompt_tokens,
                error.context_limit,
            )
        except UnrenderableError as error:
            return CompletionFailed(wanted.request, wanted.trial, "unsupported", str(error))
        except PolicyRefusedError as error:
            return CompletionFailed(wanted.request, wanted.trial, "refused", str(error))
        except PolicySlowError as error:
            return CompletionFailed(wanted.request, wanted.trial, "too_slow", str(error))
        except PolicyError as error:
            return CompletionFailed(wanted.request, wanted.trial, "provider_error", str(error))
        if wanted.count_only:
            return answer
        await self.shared.pacer.hold(
            self.plan.step,
            self.plan.purpose,
            self._delay(wanted),
            lambda: self.shared.steering.is_held(wanted.trial),
        )
        return answer

    def abandoned(self, turn: int) -> None:
        self.conversation.abandoned(turn)

    def side_call(self, turn: int) -> None:
        self.conversation.side_call(turn)

    def typed_in(self) -> None:
        self.conversation.typed_in()

    def demonstrated(self, message: Demonstrated, actor: str) -> None:
        prompt = self.conversation.prompt_of(message.messages)
        self.shared.demonstrations.keep(self.plan, message, prompt, actor)

    def _delay(self, wanted: SampleWanted) -> Callable[[bool, float], None]:
        def delayed(delayed: bool, waited_sec: float) -> None:
            self.shared.pool.delay(
                CompletionDelayed(wanted.request, wanted.trial, delayed, waited_sec)
            )

        return delayed

    async def _draw(self, wanted: SampleWanted, request: SampleRequest) -> Sample:
        place = f"{self.plan.group}-{self.plan.index}"
        asker = Asker(
            wanted.trial,
            place,
            wanted.turn,
            self.patience_sec,
            self.budget_sec,
            self._delay(wanted),
        )
        return await self.shared.completions.draw(asker, request, self.plan.seed)


class TrialRunner[P: Pool](RunningTrials[P]):
    """Runs at most `n_parallel` trials at once; each ends with a typed outcome, whatever happens.

    `settings.outcomes` says what an outcome leads to; earlier attempts are kept.
    """

    def __init__(
        self,
        run: EngineContext,
        settings: TrialSettings,
        pool: Callable[[RunningTrials[P]], P],
        guard: StorageGuard | None = None,
    ) -> None:
        """
        Args:
            pool: makes the pool, as `RunningTrials` wants it.
            guard: looks after the run directory; None: it is not looked after.
        """
        config, journal = settings.config, run.journal
        admission = Admission(config.n_parallel_envs, config.env_starts_per_sec)
        super().__init__(journal, admission, pool)
        self._scripted_trials = ScriptedTrials(self.pool)
        self._guard = guard
        self.outages = Outages(journal) if guard is None else guard.outages
        self.pause = RunPause(self.steering, journal, self.outages, paused=run.start.paused)
        self.unusable = UnusableTasks(journal, config.max_unusable, run.start.unusable)
        self.demonstrations = DemonstrationKeeper(run)
        self._settings = settings
        self._policy = run.policy
        self._journal = journal
        self._streak = FailureStreak(config.halt_after)
        self._agent_failures = 0
        """Trials whose agent could not be set up."""
        self.completions = Completions(
            run.policy, journal, self.outages, config.retry_wait_sec, config.sample_timeout_sec
        )
        self._pacer = Pacer(config.pace_sec)
        self._answers = _Answering(
            self.completions, self.pool, self._pacer, self.steering, self.demonstrations
        )
        self._turns = LoopTurns()
        self._cut_off_by = RUN_ENDED_FIRST

    def change(self, config: RunConfig) -> None:
        """Use other settings from now on; what has begun ends as it began."""
        self._settings = dataclasses.replace(self._settings, config=config)
        self.completions.change(config.retry_wait_sec, config.sample_timeout_sec)
        self._pacer.change(config.pace_sec)
        self._admission.change(config.n_parallel_envs, config.env_starts_per_sec)

    def show_examples(self, examples: str) -> None:
        """Have these in the first prompt of every trial that starts from now on."""
        self._settings = dataclasses.replace(self._settings, examples=examples)

    async def perform(self, task: TaskInfo, answers: Sequence[str]) -> str | None:
        """Give these answers in a trial that is none of the run's; what its first block has left
        on the screen, None where that earned no reward."""
        plan = TrialPlan(task, "example", 0, 0, "train", MODEL_ITSELF, 0, ())
        spec = self._spec(plan, f"example-{task.name.replace('/', '--')}", task.agent_timeout_sec)
        place = self._settings.trials_dir
        with tempfile.TemporaryDirectory(
            prefix=".examples-", dir=place, ignore_cleanup_errors=True
        ) as at:
            return await self._scripted_trials.perform(example_spec(spec, Path(at)), answers)

    @override
    def on_message(self, worker: WorkerId, message: FromWorker) -> None:
        if not self._scripted_trials.take(message):
            super().on_message(worker, message)

    @override
    def on_worker_lost(self, lost: WorkerLostInfo) -> None:
        self._scripted_trials.lost(lost.trials)
        super().on_worker_lost(lost)

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

    @property
    def has_worked(self) -> bool:
        """Whether a trial has ended by the policy's own doing."""
        return self._streak.has_worked

    async def in_outage(self) -> bool:
        """Whether what failed just now may be an outage's doing."""
        return self.outages.on or (self._guard is not None and await self._guard.check())

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
            plan.sampling,
            SamplingLimits(self._settings.context_limit, self._settings.config.max_tokens),
            self._policy,
            self._journal,
            self._turns,
            plan.origin,
        )
        patience = self._settings.config.sample_timeout_sec
        return _PolicyModel(plan, conversation, patience, budget, self._answers)

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
            agent="oracle" if self._scripted(plan) else plan.agent or config.agent,
            agent_kwargs=config.agent_kwargs,
            agent_examples=without_own(settings.examples, plan.task.instruction),
            agent_install=config.agent_install or "",
            agent_setup_network=config.agent_setup_network,
            endpoint=EndpointSpec(config.endpoint_public_url, config.endpoint_port),
            enable_summarize=config.enable_summarize,
            proactive_summarization_threshold=config.proactive_summarization_threshold,
            # An impossible task's own solution earns nothing either, and that is as it should be.
            check_zeros="never" if plan.task.impossible else settings.check_zeros,
            kill_before_verifying=settings.kill_before_verifying,
            snapshots=_snapshot_plan(settings, trial),
            train_side_calls=config.train_side_calls,
            rewards=RewardChoice(config.reward_key, config.reward_weights),
            fixed_programs=settings.fixed_programs,
            credentials=config.task_credentials,
            origin=plan.origin.point if plan.origin is not None else None,
        )

    def _scripted(self, plan: TrialPlan) -> bool:
        """Whether the task's own solution acts, of those that are evaluated."""
        return plan.purpose == "eval" and plan.task.name in self._settings.config.oracle_tasks

    def _honeypot_passed(self, trial: str, plan: TrialPlan) -> None:
        finding = honeypot_finding(trial, plan.label, plan.step)
        if alarm := alarm_of(finding, self._settings.config.on_alarm):
            self.pause.raise_alarms(alarm)

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
        self.unusable.tried(plan.task.name, verified=end.verdict is not None)
        if outcome not in UNSCORED:
            self._streak.worked()

    def _count_failure(self, rollout: Rollout, end: TrialEnd) -> None:
        """Count what infrastructure broke, in no outage, against the run or against the task.

        Raises:
            HaltError: it was one too many in a row.
        """
        outcome, reason, facts = rollout.outcome, rollout.reason, end.facts
        task, unusable = rollout.plan.task.name, end.decision.unusable
        if self._settings.outcomes[outcome] == "retry":
            if unusable:
                self.unusable.add(task, Unusable(unusable, reason, "trial"))
            elif facts and (outcome is Outcome.SETUP_ERROR or _never_verified(facts)):
                if outcome is Outcome.SETUP_ERROR:
                    self._look_at_agent(facts, reason)
                of: UnusableKind = "image" if outcome is Outcome.SETUP_ERROR else "verifier"
                why = Unusable(of, reason, "trial")
                self.unusable.failed(task, why, facts.exception_message or "")
        incident = end.incident or (task if unusable else None)
        self._streak.failed(rollout.trial, outcome, reason, incident)

    def _look_at_agent(self, facts: TrialFacts, reason: str) -> None:
        """Tell an agent that can't be set up from a task that can't.

        Raises:
            HaltError: no trial can have the agent.
        """
        if facts.agent_uninstalled:
            raise HaltError(short_reason(facts.agent_uninstalled))
        if facts.failed_phase != "agent_setup" or self.has_worked:
            return
        self._agent_failures += 1
        if self._agent_failures >= _AGENT_FAILURES:
            agent = self._settings.config.agent
            raise HaltError(f"{agent} can't be set up in any trial so far: {reason}")

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
