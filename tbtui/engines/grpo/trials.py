"""Runs trials: places them on workers, answers their model calls, journals all of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable

from tbtui.algorithm.costs import Tokens, sampled_tokens
from tbtui.config import RunConfig
from tbtui.engines.events_of import turn_event
from tbtui.engines.grpo.admission import Admission, Slot
from tbtui.engines.grpo.attempts import Attempt, Attempts, Place, TrialEnd
from tbtui.engines.grpo.completions import Asker, Completions
from tbtui.engines.grpo.failures import FailureStreak, HaltError, retry_wait
from tbtui.engines.grpo.outages import Outages
from tbtui.engines.grpo.pausing import comes_before
from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.recorded import POLICY_LOST_FIRST, RUN_ENDED_FIRST
from tbtui.engines.grpo.rollouts import Rollout, TrialSettings, sent
from tbtui.engines.grpo.sampling import Conversation, LoopTurns
from tbtui.engines.grpo.steering import Pool, Steering
from tbtui.engines.grpo.unusable_tasks import UnusableTasks
from tbtui.journal.events import (
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialRetried,
    TurnParsed,
    WorkerLost,
    WorkerRecycled,
    WorkerStarted,
)
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    ContextOverflowError,
    Policy,
    PolicyDeniedError,
    PolicyError,
    PolicyLostError,
    Sample,
    SampleRequest,
)
from tbtui.rollout.messages import (
    CompletionDelayed,
    CompletionFailed,
    ControlRefused,
    FromWorker,
    GivenBack,
    KeysTyped,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleWanted,
    TakenOver,
    TrialDone,
    TrialSpec,
    TurnSeen,
    TurnUnderstood,
    WorkerReady,
)
from tbtui.rollout.outcome import Decision, decide, is_infrastructure, lost_with_worker
from tbtui.rollout.pool import WorkerId, WorkerLostInfo, WorkerRecycledInfo

_LARGEST_SHARE = 0.8
"""Of the agent's budget, for one completion."""

StorageCheck = Callable[[], Awaitable[bool]]
"""Whether the run directory is out of order now."""


async def no_storage_check() -> bool:
    """For a run whose directory nobody watches."""
    return False


class TrialRunner[P: Pool]:
    """At most `n_parallel` trials at once; each finishes with a typed outcome, whatever happens.

    What an outcome leads to is `settings.outcomes`'s to say; earlier attempts are kept.
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
            pool: makes the pool that reports to this runner's `on_message` and `on_worker_lost`.
            unusable: tasks that are known to be.
            storage: looks at once whether the run directory is in order, and begins an outage if
                it is not.
        """
        self.outages = outages or Outages(journal)
        self._check_storage = storage
        self.unusable = unusable or UnusableTasks(journal)
        self._settings = settings
        self.pool = pool(self)
        self._policy = policy
        self._journal = journal
        self._admission = Admission(settings.n_parallel, settings.starts_per_sec)
        self._streak = FailureStreak(settings.halt_after)
        self.completions = Completions(
            policy, journal, self.outages, settings.retry_wait_sec, settings.sample_timeout_sec
        )
        self._attempts = Attempts()
        self._turns = LoopTurns()
        self.steering = Steering(self._attempts, self._admission, self.pool, journal)
        self._answering: dict[asyncio.Task[None], str] = {}
        """Model calls under way -> the attempt that waits for it."""
        self._cut_off_by = RUN_ENDED_FIRST

    def change(self, config: RunConfig) -> None:
        """Settings of the run have changed; what has begun ends as it began."""
        self._settings = dataclasses.replace(
            self._settings,
            max_retries=config.max_retries,
            retry_wait_sec=config.retry_wait_sec,
            sample_timeout_sec=config.sample_timeout_sec,
        )
        self.completions.retry_wait_sec = config.retry_wait_sec
        self.completions.patience_sec = config.sample_timeout_sec
        self._admission.change(config.n_parallel_envs, config.env_starts_per_sec)

    async def run(
        self, plan: TrialPlan, attempt: int = 1, consumed: Tokens | None = None
    ) -> Rollout:
        """Attempt a trial, from attempt number `attempt` on, until its outcome stands.

        `consumed`: by the attempts before.

        Raises:
            HaltError: its outcome ends the run.
            PolicyLostError: the policy was lost under it, or under another trial.
            PolicyDeniedError: its server takes no requests from us any more.
        """
        settings = self._settings
        place = Place(plan)
        self._attempts.open_place(place)
        retries, spent, tokens = 0, PhaseSeconds(), consumed or Tokens()
        try:
            while True:
                rollout = await self._attempt(place, attempt, spent, tokens)
                spent, tokens = rollout.spent, rollout.tokens
                broken = is_infrastructure(rollout.outcome)
                outage = broken and await self.in_outage()
                if broken and not outage and place.end is not None:
                    self._count_failure(rollout, place.end)
                if (asked := place.again) is not None:
                    place.again, why, wait = None, asked, 0.0
                    place.plan = plan.again(attempt + 1)
                elif outage and plan.task.name not in self.unusable and not place.final.is_set():
                    why, wait = str(rollout.outcome), 0.0
                    await self._outage_over(place)
                elif (
                    settings.outcomes[rollout.outcome] != "retry"
                    or retries >= settings.max_retries
                    or plan.task.name in self.unusable
                ):
                    return rollout
                else:
                    retries += 1
                    why = str(rollout.outcome)
                    wait = retry_wait(settings.retry_wait_sec, retries, plan.seed)
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
                    spent = _add(spent, PhaseSeconds(queue=wait))
        finally:
            self._attempts.close_place(place)

    async def in_outage(self) -> bool:
        """Whether what failed just now may be an outage's doing."""
        return self.outages.on or await self._check_storage()

    async def _outage_over(self, place: Place) -> None:
        """Until everything is in order, or no further attempt is wanted."""
        final = asyncio.ensure_future(place.final.wait())
        try:
            await comes_before(self.outages.over(), final)
        finally:
            final.cancel()

    async def _attempt(
        self, place: Place, number: int, spent: PhaseSeconds, tokens: Tokens
    ) -> Rollout:
        plan = place.plan
        trial = plan.trial_id(number)
        budget = self._settings.trial_timeout_sec or plan.task.agent_timeout_sec
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
            )
        )
        loop = asyncio.get_running_loop()
        queued = started = loop.time()
        attempt = self._new_attempt(trial, plan, budget)
        self._attempts.fill(place, attempt)
        if place.final.is_set():
            attempt.withdrawn.set_result(None)
        try:
            attempt.slot = await self._admitted(attempt)
            started = loop.time()
            if attempt.slot is None:
                end = TrialEnd(Decision(Outcome.CANCELLED, None, None, "never started"), None)
            else:
                self.pool.start_trial(self._spec(plan, trial, budget))
                end = await attempt.ended
        except (asyncio.CancelledError, PolicyLostError, PolicyDeniedError):
            self._journal.append(_unfinished(trial, self._cut_off_by))
            self.steering.over(trial, Outcome.CANCELLED)
            raise
        finally:
            if attempt.slot is not None:
                attempt.slot.leave()
            self._attempts.vacate(place, attempt)
            for answering in [task for task, of in self._answering.items() if of == trial]:
                answering.cancel()
            self._journal.forget(trial)
        rollout = self._finished(place, attempt, number, end, started - queued, spent)
        return dataclasses.replace(rollout, tokens=tokens + sampled_tokens(rollout.calls))

    def _new_attempt(self, trial: str, plan: TrialPlan, budget: float) -> Attempt:
        loop = asyncio.get_running_loop()
        conversation = Conversation(
            trial,
            plan.seed,
            plan.temperature,
            self._settings.limits,
            self._policy,
            self._journal,
            self._turns,
        )
        # An answer that takes most of the budget is the server's slowness, not the policy's.
        patience = min(self._settings.sample_timeout_sec, _LARGEST_SHARE * budget)
        return Attempt(
            trial, plan, conversation, patience, loop.create_future(), loop.create_future()
        )

    async def _admitted(self, attempt: Attempt) -> Slot | None:
        """A slot, or None when the attempt was withdrawn before it got one."""
        entering = asyncio.ensure_future(self._admission.enter(attempt.plan.step))
        try:
            await asyncio.wait((entering, attempt.withdrawn), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            entering.cancel()
            raise
        if not attempt.withdrawn.done():
            return entering.result()
        if entering.done():
            entering.result().leave()
        entering.cancel()
        return None

    def _spec(self, plan: TrialPlan, trial: str, budget: float) -> TrialSpec:
        settings = self._settings
        return TrialSpec(
            trial=trial,
            task_dir=plan.task.path,
            trials_dir=settings.trials_dir,
            environment=settings.environment,
            model_name=settings.model_name,
            max_turns=settings.max_turns,
            budget_sec=budget,
            context_limit=settings.limits.context,
            max_tokens=settings.limits.completion,
            keep=settings.keep,
            agent=settings.agent,
            enable_summarize=settings.enable_summarize,
            proactive_summarization_threshold=settings.proactive_summarization_threshold,
            check_zeros=settings.check_zeros,
            kill_before_verifying=settings.kill_before_verifying,
        )

    def _finished(
        self,
        place: Place,
        attempt: Attempt,
        number: int,
        end: TrialEnd,
        queue_seconds: float,
        spent: PhaseSeconds,
    ) -> Rollout:
        trial, decision, facts, calls = (
            attempt.trial,
            end.decision,
            end.facts,
            tuple(attempt.conversation.calls),
        )
        outcome, reason = decision.outcome, decision.reason
        if outcome is Outcome.CANCELLED and attempt.ended_because:
            reason = attempt.ended_because
        action = self._settings.outcomes[outcome]
        # What is left out of training still counts when the policy is evaluated, if the policy
        # did it.
        alone = outcome is not Outcome.HUMAN_TOUCHED
        scored = action == "train" or (place.plan.purpose == "eval" and alone)
        seconds = (facts.seconds if facts else PhaseSeconds()).model_copy(
            update={"queue": queue_seconds}
        )
        rollout = Rollout(
            plan=place.plan,
            trial=trial,
            attempt=number,
            outcome=outcome,
            reason=reason,
            reward=decision.reward if scored else None,
            calls=calls,
            turns=facts.turns if facts else len(calls),
            seconds=_total(seconds) - queue_seconds,
            spent=_add(spent, seconds),
            verdict=decision.verdict,
            verifier_output=facts.verifier_output if facts else "",
            verifying_sec=seconds.verifying,
            commands=tuple(attempt.commands),
        )
        self._journal.append(
            TrialFinished(
                trial=trial,
                outcome=outcome,
                reason=reason,
                verdict=decision.verdict,
                reward=rollout.reward,
                turns=rollout.turns,
                seconds=seconds,
                verifier_output=rollout.verifier_output,
            )
        )
        self.steering.over(trial, outcome)
        if action == "halt":
            raise HaltError(f"{trial}: {outcome}: {reason} (on_outcome.{outcome}=halt)")
        self.unusable.tried(place.plan.task.name)
        if not is_infrastructure(outcome) and outcome is not Outcome.CANCELLED:
            self._streak.worked()
        place.end = end
        return rollout

    def _count_failure(self, rollout: Rollout, end: TrialEnd) -> None:
        """What infrastructure broke, in no outage, speaks against the run or against the task.

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

    # What workers say

    def on_message(self, worker: WorkerId, message: FromWorker) -> None:
        """Journal what a worker says and answer what it asks. Called on the engine's loop."""
        match message:
            case PhaseEntered(trial, phase, detail):
                if attempt := self._attempts.get(trial):
                    attempt.phase = phase
                    if phase is TrialPhase.TEARDOWN and attempt.slot is not None:
                        attempt.slot.make_room()
                    self._journal.append(TrialPhaseChanged(trial=trial, phase=phase, detail=detail))
            case SampleWanted():
                task = asyncio.get_running_loop().create_task(self._answer(message))
                self._answering[task] = message.trial
                task.add_done_callback(self._answered)
            case TurnUnderstood() | TurnSeen():
                self._journal.append(event := turn_event(message))
                if isinstance(event, TurnParsed) and (attempt := self._attempts.get(message.trial)):
                    attempt.commands += sent(event)
            case PauseEntered(trial, frozen):
                self.steering.paused(trial, "freeze" if frozen else "pause")
            case PauseLeft(trial):
                self.steering.paused(trial, None)
            case TakenOver(trial):
                self.steering.taking_over.taken(trial)
            case KeysTyped():
                self.steering.taking_over.typed(message)
            case GivenBack(trial):
                self.steering.taking_over.given_back(trial)
            case ControlRefused():
                self.steering.refused(message)
            case TrialDone(trial, facts):
                self._end(trial, TrialEnd(decide(facts), facts))
            case WorkerReady(pid):
                self._journal.append(WorkerStarted(worker=worker, pid=pid))
            case _:
                # A heartbeat is the pool's own business.
                pass

    def on_worker_lost(self, lost: WorkerLostInfo) -> None:
        """A worker died: its trials are lost, and only its trials."""
        self._journal.append(
            WorkerLost(worker=lost.worker, pid=lost.pid, reason=lost.reason, trials=lost.trials)
        )
        for trial in lost.trials:
            incident = f"worker {lost.worker}"
            self._end(trial, TrialEnd(lost_with_worker(lost.reason), None, incident))

    def on_worker_recycled(self, recycled: WorkerRecycledInfo) -> None:
        """A worker grew old and left after its last trial."""
        self._journal.append(
            WorkerRecycled(worker=recycled.worker, pid=recycled.pid, reason=recycled.reason)
        )

    def _end(self, trial: str, end: TrialEnd) -> None:
        if (attempt := self._attempts.get(trial)) and not attempt.ended.done():
            attempt.ended.set_result(end)

    async def _answer(self, wanted: SampleWanted) -> None:
        running = self._attempts.get(wanted.trial)
        if running is None:
            return
        try:
            answer = await running.conversation.answer(
                wanted, lambda request: self._draw(running, wanted, request)
            )
        except (PolicyLostError, PolicyDeniedError):
            raise  # no trial's failure: every other one would only hear the same
        except ContextOverflowError as error:
            self.pool.reply(CompletionFailed(wanted.request, "context_overflow", str(error)))
        except PolicyError as error:
            self.pool.reply(CompletionFailed(wanted.request, "provider_error", str(error)))
        else:
            self.pool.reply(answer)

    async def _draw(self, attempt: Attempt, wanted: SampleWanted, request: SampleRequest) -> Sample:
        def delayed(delayed: bool, waited_sec: float) -> None:
            self.pool.delay(CompletionDelayed(wanted.request, delayed, waited_sec))

        plan = attempt.plan
        place = f"{plan.group}-{plan.index}"
        asker = Asker(attempt.trial, place, wanted.turn, attempt.patience_sec, delayed)
        return await self.completions.draw(asker, request, plan.seed)

    def _answered(self, task: asyncio.Task[None]) -> None:
        del self._answering[task]
        if task.cancelled() or (error := task.exception()) is None:
            return
        # Not a completion's failure but ours (a full disk, a defect), or the end of the policy.
        if isinstance(error, PolicyLostError):
            self.policy_lost()
        self.fail(error)

    def policy_lost(self) -> None:
        """Trials that end from now on end because of that."""
        self._cut_off_by = POLICY_LOST_FIRST

    def fail(self, error: BaseException) -> None:
        """Let whoever awaits a trial raise `error`: no trial can go on."""
        for attempt in self._attempts:
            if not attempt.ended.done():
                attempt.ended.set_exception(error)
                attempt.ended.exception()  # one that is still queued will not look at it

    async def close(self) -> None:
        """Give up the model calls that nobody waits for any more."""
        answering = list(self._answering)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


def _add(one: PhaseSeconds, other: PhaseSeconds) -> PhaseSeconds:
    mine, theirs = one.model_dump(), other.model_dump()
    return PhaseSeconds(**{phase: mine[phase] + theirs[phase] for phase in mine})


def _total(seconds: PhaseSeconds) -> float:
    return float(sum(seconds.model_dump().values()))


def _unfinished(trial: str, why: str) -> TrialFinished:
    """The run, or its policy, ended under a trial."""
    return TrialFinished(
        trial=trial,
        outcome=Outcome.CANCELLED,
        reason=why,
        verdict=None,
        reward=None,
        turns=0,
        seconds=PhaseSeconds(),
    )
