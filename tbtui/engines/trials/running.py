"""Runs attempts at trials on rollout workers, for our engine and for Prime-RL's plugin alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tbtui.engines.events_of import EventLog, sent, turn_event
from tbtui.engines.trials.admission import Admission, Slot
from tbtui.engines.trials.attempts import Attempt, Attempts, Place, TrialEnd
from tbtui.engines.trials.steering import Pool, Steering
from tbtui.journal.events import (
    Outcome,
    TrialPhase,
    TrialPhaseChanged,
    TurnParsed,
    WorkerLost,
    WorkerRecycled,
    WorkerStarted,
)
from tbtui.journal.hold import FROZEN, PAUSED, RUNNING
from tbtui.rollout.messages import (
    AgentWritten,
    ControlRefused,
    Demonstrated,
    ForkReached,
    FromWorker,
    GivenBack,
    KeysTyped,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleAbandoned,
    SampleWanted,
    SideCallSeen,
    SnapshotTaken,
    TakenOver,
    TrialDone,
    TrialSpec,
    TurnSeen,
    TurnUnderstood,
    WorkerReady,
)
from tbtui.rollout.outcome import Decision, decide, lost_with_worker
from tbtui.rollout.pool import WorkerId, WorkerLostInfo, WorkerRecycledInfo


class RunningTrials[P: Pool]:
    """The attempts that are queued or running: admits, starts, answers, steers and logs them.

    What is tried, which model answers and what an end leads to is the subclass's.
    """

    def __init__(
        self,
        log: EventLog,
        admission: Admission,
        pool: Callable[[RunningTrials[P]], P],
        *,
        prime_rl: bool = False,
    ) -> None:
        """
        Args:
            pool: makes the pool, which reports to this object's `on_message`, `on_worker_lost`
                and `on_worker_recycled`.
            prime_rl: the trials run in an environment server of Prime-RL's.
        """
        self.pool = pool(self)
        self._log = log
        self._admission = admission
        self._attempts = Attempts()
        self.steering = Steering(self._attempts, admission, self.pool, log, prime_rl=prime_rl)
        self._answering: dict[asyncio.Task[None], Attempt] = {}
        """Model calls under way."""

    async def run_attempt(self, place: Place[Any], attempt: Attempt, spec: TrialSpec) -> TrialEnd:
        """Run an attempt when there is room for it. Cancelled, it leaves the worker as it is.

        Raises:
            BaseException: what the attempt was failed with.
        """
        loop = asyncio.get_running_loop()
        queued = loop.time()
        self._attempts.fill(place, attempt)
        if place.final.is_set():
            attempt.withdrawn.set_result(None)
        try:
            attempt.slot = await self._admitted(attempt)
            attempt.queued_sec = loop.time() - queued
            if attempt.slot is None:
                end = TrialEnd(Decision(Outcome.CANCELLED, None, None, "never started"), None)
            else:
                self.pool.start_trial(spec)
                self.steering.started(attempt)
                end = await attempt.ended
            if attempt.ended_because and end.decision.outcome is Outcome.CANCELLED:
                end = end.because(attempt.ended_because)
            return end
        finally:
            if attempt.slot is not None:
                attempt.slot.leave()
            self._attempts.vacate(place, attempt)
            for answering in [task for task, of in self._answering.items() if of is attempt]:
                answering.cancel()

    async def _admitted(self, attempt: Attempt) -> Slot | None:
        """A slot, or None when the attempt was withdrawn before it got one."""
        entering = asyncio.ensure_future(self._admission.enter(attempt.step))
        try:
            await asyncio.wait((entering, attempt.withdrawn), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            if entering.done():
                entering.result().leave()
            entering.cancel()
            raise
        if not attempt.withdrawn.done():
            return entering.result()
        if entering.done():
            entering.result().leave()
        entering.cancel()
        return None

    # What workers say

    def on_message(self, worker: WorkerId, message: FromWorker) -> None:
        """Log what a worker says and answer what it asks. Called on the runner's loop."""
        match message:
            case PhaseEntered(trial, phase, detail):
                if attempt := self._attempts.get(trial):
                    attempt.phase = phase
                    if phase is TrialPhase.TEARDOWN and attempt.slot is not None:
                        attempt.slot.make_room()
                    self._log.append(TrialPhaseChanged(trial=trial, phase=phase, detail=detail))
            case SampleWanted():
                if attempt := self._attempts.get(message.trial):
                    task = asyncio.get_running_loop().create_task(self._answer(attempt, message))
                    self._answering[task] = attempt
                    task.add_done_callback(self._answered)
            case SampleAbandoned(trial, turn):
                if attempt := self._attempts.get(trial):
                    attempt.model.abandoned(turn)
            case SideCallSeen(trial, turn):
                if attempt := self._attempts.get(trial):
                    attempt.model.side_call(turn)
            case TurnUnderstood() | TurnSeen() | ForkReached() | SnapshotTaken():
                self._log.append(event := turn_event(message))
                if isinstance(event, TurnParsed) and (attempt := self._attempts.get(message.trial)):
                    attempt.keystrokes += sent(event)
            case PauseEntered(trial, frozen):
                self.steering.paused(trial, FROZEN if frozen else PAUSED)
            case PauseLeft(trial):
                self.steering.paused(trial, RUNNING)
            case TakenOver(trial):
                self.steering.taking_over.taken(trial)
            case KeysTyped():
                self.steering.taking_over.typed(message)
            case Demonstrated(trial):
                if attempt := self._attempts.get(trial):
                    attempt.model.demonstrated(message, attempt.typed_by)
            case AgentWritten():
                self.steering.written(message)
            case GivenBack(trial):
                self.steering.taking_over.given_back(trial)
            case ControlRefused():
                self.steering.refused(message)
            case TrialDone(trial, facts):
                self._end(trial, TrialEnd(decide(facts), facts))
            case WorkerReady(pid):
                self._log.append(WorkerStarted(worker=worker, pid=pid))
            case _:
                # A heartbeat is for the pool alone.
                pass

    def on_worker_lost(self, lost: WorkerLostInfo) -> None:
        """End the trials of a worker that died."""
        self._log.append(
            WorkerLost(worker=lost.worker, pid=lost.pid, reason=lost.reason, trials=lost.trials)
        )
        for trial in lost.trials:
            incident = f"worker {lost.worker}"
            self._end(trial, TrialEnd(lost_with_worker(lost.reason), None, incident))

    def on_worker_recycled(self, recycled: WorkerRecycledInfo) -> None:
        """Log that a worker was replaced, after its last trial."""
        self._log.append(
            WorkerRecycled(worker=recycled.worker, pid=recycled.pid, reason=recycled.reason)
        )

    def _end(self, trial: str, end: TrialEnd) -> None:
        if attempt := self._attempts.get(trial):
            attempt.end(end)

    # Model calls

    async def _answer(self, attempt: Attempt, wanted: SampleWanted) -> None:
        if (answer := await attempt.model.answer(wanted)) is not None:
            self.pool.reply(answer)

    def _answered(self, task: asyncio.Task[None]) -> None:
        attempt = self._answering.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.answer_failed(attempt, error)

    def answer_failed(self, attempt: Attempt, error: BaseException) -> None:
        """`attempt`'s model raised `error`: a full disk, a defect, or the end of the policy."""
        attempt.fail(error)

    async def close(self) -> None:
        """Cancel the model calls under way."""
        answering = list(self._answering)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
