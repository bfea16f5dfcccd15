"""Runs trials: places them on workers, answers their model calls, journals all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tbtui.algorithm.segments import Call
from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.sampling import Conversation, SamplingLimits
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    CommandDone,
    CommandVerb,
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialResumed,
    TrialRetried,
    TurnObserved,
    TurnParsed,
    WorkerLost,
    WorkerStarted,
)
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import ContextOverflowError, Policy, PolicyError
from tbtui.rollout.messages import (
    Completion,
    CompletionFailed,
    ControlVerb,
    EnvironmentSpec,
    FromWorker,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleWanted,
    TrialDone,
    TrialFacts,
    TrialSpec,
    TurnSeen,
    TurnUnderstood,
    WorkerReady,
)
from tbtui.rollout.outcome import Decision, decide, is_infrastructure, lost_with_worker
from tbtui.rollout.pool import WorkerId, WorkerLostInfo


class HaltError(Exception):
    """The run can't go on; the message is one line for a person."""


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


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished trial, as training needs it. `reward` None: it has no part in its group."""

    plan: TrialPlan
    trial: str
    outcome: Outcome
    reason: str
    reward: float | None
    calls: tuple[Call, ...]
    turns: int
    seconds: float
    """Wall time on a worker."""


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """What an attempt came to. `facts` is None when its worker died under it."""

    decision: Decision
    facts: TrialFacts | None


@dataclass(slots=True)
class _Running:
    """A trial that a worker has."""

    conversation: Conversation
    ended: asyncio.Future[TrialEnd]
    paused: bool = False


class Pool(Protocol):
    """Where trials run; `rollout.pool.WorkerPool` is the one that a run uses."""

    def start_trial(self, spec: TrialSpec) -> None: ...

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool: ...

    def reply(self, answer: Completion | CompletionFailed) -> bool: ...


class TrialRunner[P: Pool]:
    """At most `n_parallel` trials at once; each finishes with a typed outcome, whatever happens.

    A trial that infrastructure has failed is attempted again, its earlier attempts kept.
    """

    def __init__(
        self,
        settings: TrialSettings,
        policy: Policy,
        journal: JournalWriter,
        pool: Callable[[TrialRunner[P]], P],
    ) -> None:
        """`pool` makes the pool that reports to this runner's `on_message` and
        `on_worker_lost`."""
        self._settings = settings
        self.pool = pool(self)
        self._policy = policy
        self._journal = journal
        self._slots = asyncio.Semaphore(settings.n_parallel)
        self._open = asyncio.Event()
        self._open.set()
        self._running: dict[str, _Running] = {}
        self._queued: set[str] = set()
        self._waiting: dict[str, list[Command]] = {}
        """Commands that a running trial has not carried out yet."""
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self, plan: TrialPlan) -> Rollout:
        """Attempt a trial until it has an outcome of its own or the retries are used up."""
        attempt = 1
        while True:
            rollout = await self._attempt(plan, attempt)
            if not is_infrastructure(rollout.outcome) or attempt > self._settings.max_retries:
                return rollout
            attempt += 1
            self._journal.append(
                TrialRetried(
                    trial=rollout.trial,
                    successor=plan.trial_id(attempt),
                    reason=str(rollout.outcome),
                )
            )

    async def _attempt(self, plan: TrialPlan, attempt: int) -> Rollout:
        trial = plan.trial_id(attempt)
        budget = self._settings.trial_timeout_sec or plan.task.agent_timeout_sec
        self._journal.append(
            TrialQueued(
                trial=trial,
                label=plan.label,
                task=plan.task.name,
                group=plan.group,
                step=plan.step,
                purpose=plan.purpose,
                attempt=attempt,
                budget_sec=budget,
            )
        )
        loop = asyncio.get_running_loop()
        queued = loop.time()
        self._queued.add(trial)
        try:
            async with self._slots:
                await self._open.wait()
                self._queued.discard(trial)
                started = loop.time()
                conversation = Conversation(
                    trial,
                    plan.seed,
                    plan.temperature,
                    self._settings.limits,
                    self._policy,
                    self._journal,
                )
                running = _Running(conversation, loop.create_future())
                self._running[trial] = running
                self.pool.start_trial(self._spec(plan, trial, budget))
                end = await running.ended
        except asyncio.CancelledError:
            self._journal.append(_unfinished(trial))
            raise
        finally:
            self._queued.discard(trial)
            self._running.pop(trial, None)
            self._journal.forget(trial)
        seconds = loop.time() - started
        self._finish(trial, end, turns=len(conversation.calls), queue_seconds=started - queued)
        decision = end.decision
        return Rollout(
            plan,
            trial,
            decision.outcome,
            decision.reason,
            decision.reward,
            tuple(conversation.calls),
            len(conversation.calls),
            seconds,
        )

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
        )

    def _finish(self, trial: str, end: TrialEnd, turns: int, queue_seconds: float) -> None:
        decision, facts = end.decision, end.facts
        spent = facts.seconds if facts else PhaseSeconds()
        self._journal.append(
            TrialFinished(
                trial=trial,
                outcome=decision.outcome,
                reason=decision.reason,
                verdict=decision.verdict,
                reward=decision.reward,
                turns=facts.turns if facts else turns,
                seconds=spent.model_copy(update={"queue": queue_seconds}),
                verifier_output=facts.verifier_output if facts else "",
            )
        )
        for command in self._waiting.pop(trial, []):
            carried_out = command.verb in ("stop", "cancel")
            ending = f"ended as {decision.outcome}"
            self._done(command, carried_out, ending if carried_out else f"{trial} {ending} first")

    # What workers say

    def on_message(self, worker: WorkerId, message: FromWorker) -> None:
        """Journal what a worker says and answer what it asks. Called on the engine's loop."""
        match message:
            case PhaseEntered(trial, phase, detail):
                if trial in self._running and phase is not TrialPhase.FINISHED:
                    self._journal.append(TrialPhaseChanged(trial=trial, phase=phase, detail=detail))
            case SampleWanted():
                task = asyncio.get_running_loop().create_task(self._answer(message))
                self._answering.add(task)
                task.add_done_callback(self._answered)
            case TurnUnderstood():
                self._journal.append(
                    TurnParsed(
                        trial=message.trial,
                        turn=message.turn,
                        analysis=message.analysis,
                        plan=message.plan,
                        commands=message.commands,
                        task_complete=message.task_complete,
                        error=message.error,
                        warning=message.warning,
                    )
                )
            case TurnSeen(trial, turn, observation, seconds):
                self._journal.append(
                    TurnObserved(trial=trial, turn=turn, observation=observation, seconds=seconds)
                )
            case PauseEntered(trial):
                self._paused(trial, True)
            case PauseLeft(trial):
                self._paused(trial, False)
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
            self._end(trial, TrialEnd(lost_with_worker(lost.reason), None))

    def _end(self, trial: str, end: TrialEnd) -> None:
        if (running := self._running.get(trial)) and not running.ended.done():
            running.ended.set_result(end)

    async def _answer(self, wanted: SampleWanted) -> None:
        running = self._running.get(wanted.trial)
        if running is None:
            return
        try:
            answer = await running.conversation.answer(wanted)
        except ContextOverflowError as error:
            self.pool.reply(CompletionFailed(wanted.request, "context_overflow", str(error)))
        except PolicyError as error:
            self.pool.reply(CompletionFailed(wanted.request, "provider_error", str(error)))
        else:
            self.pool.reply(answer)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        # Not the policy's failure but ours (a full disk, a defect): it ends the run.
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Let whoever awaits a trial raise `error`: no trial can go on."""
        for running in self._running.values():
            if not running.ended.done():
                running.ended.set_exception(error)

    # What people ask

    def control(self, command: Command) -> None:
        """Carry a command on one trial out; what came of it is journalled as `CommandDone`."""
        trial, verb = command.target, command.verb
        running = self._running.get(trial)
        if running is None:
            where = "is still queued" if trial in self._queued else "is not running"
            self._done(command, False, f"{trial} {where}: nothing to {verb}")
        elif verb in ("retry", "exclude", "include"):
            self._done(command, False, f"{verb} is not possible yet")
        elif verb in ("pause", "resume") and running.paused == (verb == "pause"):
            self._done(command, True, f"{trial} is {'paused' if running.paused else 'running'}")
        else:
            self._waiting.setdefault(trial, []).append(command)
            self.pool.control(trial, verb, command.reason or f"asked by {command.actor}")

    def hold(self) -> None:
        """Start no new trial, and let each running one stop at its next turn boundary."""
        self._open.clear()
        self._tell_all("pause")

    def release(self) -> None:
        self._open.set()
        self._tell_all("resume")

    def _tell_all(self, verb: ControlVerb) -> None:
        for trial in self._running:
            self.pool.control(trial, verb, "the whole run")

    def _paused(self, trial: str, paused: bool) -> None:
        running = self._running.get(trial)
        if running is None:
            return
        running.paused = paused
        self._journal.append(TrialPaused(trial=trial) if paused else TrialResumed(trial=trial))
        verb = "pause" if paused else "resume"
        waiting = self._waiting.get(trial, [])
        for command in [command for command in waiting if command.verb == verb]:
            waiting.remove(command)
            self._done(command, True, f"{trial} {'paused' if paused else 'resumed'}")

    def _done(self, command: Command, ok: bool, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=ok, result=result))


def _unfinished(trial: str) -> TrialFinished:
    """The run ended under a trial."""
    return TrialFinished(
        trial=trial,
        outcome=Outcome.CANCELLED,
        reason="the run ended first",
        verdict=None,
        reward=None,
        turns=0,
        seconds=PhaseSeconds(),
    )
