"""Runs the trials of one environment server, in worker processes beside it.

The server's event loop also serves the model calls of all its rollouts, so Harbor, which blocks
the loop it runs on now and then, has none of it: trials run where tbtui's own do, in rollout
workers. They end with the server, however that ends, and take their sandboxes down.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, override

from tbtui.engines.awaiting import running
from tbtui.engines.events_of import issued
from tbtui.engines.prime_rl.plugin.endpoint import RequestsRefused
from tbtui.engines.prime_rl.plugin.files import ControlFile, TrialLogs, turn_sampled
from tbtui.engines.trials.admission import Admission
from tbtui.engines.trials.attempts import Attempt, Place, TrialEnd
from tbtui.engines.trials.running import RunningTrials
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    Outcome,
    Purpose,
    SideCall,
    TrialQueued,
    TurnAbandoned,
    TurnStarted,
)
from tbtui.rollout.messages import (
    Completion,
    CompletionFailed,
    Demonstrated,
    SampleWanted,
    TrialSpec,
)
from tbtui.rollout.outcome import Decision, lost_with_worker
from tbtui.rollout.pool import WorkerPool

CONTROL_EVERY_SEC = 0.2
WORKER_MAX_MB = 512.0
WORKER_MAX_TRIALS = 1000
REPEATED = "verifiers repeats the rollout"
NOT_REPEATED = "Prime-RL goes on with the rest of its group, and with other tasks for the batch"
_SERVER_ENDED = Decision(Outcome.CANCELLED, None, None, "verifiers ended the rollout")


class Endpoint(Protocol):
    """The model that verifiers serves to one rollout."""

    async def answer(
        self, wanted: SampleWanted
    ) -> Completion | CompletionFailed | RequestsRefused: ...


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings of a host; `directory`: of trials, events and commands, of all servers of a run."""

    directory: Path
    n_parallel: int
    n_workers: int
    repeats: bool = False
    """verifiers repeats a rollout that failed."""


@dataclass(frozen=True, slots=True)
class HostedTrial:
    """A rollout that verifiers asks for."""

    spec: TrialSpec
    task: str
    purpose: Purpose
    endpoint: Endpoint

    @property
    def label(self) -> str:
        return self.spec.trial


@dataclass(slots=True)
class _EndpointModel:
    """The endpoint, as the agent of one trial asks it."""

    trial: str
    endpoint: Endpoint
    logs: TrialLogs
    pool: WorkerPool
    refused: str = ""
    """Why the endpoint takes no more of the trial's requests."""

    async def answer(self, wanted: SampleWanted) -> Completion | CompletionFailed | None:
        if wanted.count_only:
            counted = await self.endpoint.answer(wanted)
            return None if isinstance(counted, RequestsRefused) else counted
        self.logs.append(TurnStarted(trial=wanted.trial, turn=wanted.turn, purpose=wanted.purpose))
        asked = time.monotonic()
        answer = await self.endpoint.answer(wanted)
        if isinstance(answer, RequestsRefused):
            # The agent's run is over, and what it has done is judged.
            self.refused = answer.reason
            self.pool.control(wanted.trial, "expire", answer.reason)
            return None
        if isinstance(answer, Completion):
            self.logs.append(turn_sampled(wanted, answer, time.monotonic() - asked))
        return answer

    def abandoned(self, turn: int) -> None:
        self.logs.append(TurnAbandoned(trial=self.trial, turn=turn))

    def side_call(self, turn: int) -> None:
        self.logs.append(SideCall(trial=self.trial, turn=turn))

    def typed_in(self) -> None:
        """Verifiers and Prime-RL know nothing of people."""

    def demonstrated(self, message: Demonstrated, actor: str) -> None:
        """Prime-RL trains on nothing but what its own server sampled."""


class TrialHost(RunningTrials[WorkerPool]):
    """Runs at most `n_parallel` trials at once, on one event loop, from `start` to `close`."""

    def __init__(self, settings: HostSettings) -> None:
        self._logs = TrialLogs(settings.directory)
        super().__init__(
            self._logs,
            Admission(settings.n_parallel, 0.0),
            lambda trials: WorkerPool(
                settings.n_workers,
                settings.directory / "logs" / f"server-{os.getpid()}",
                trials.on_message,
                trials.on_worker_lost,
                max_mb=WORKER_MAX_MB,
                max_trials=WORKER_MAX_TRIALS,
            ),
            prime_rl=True,
        )
        self._after_cancel = REPEATED if settings.repeats else NOT_REPEATED
        self._control = ControlFile(settings.directory)
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the workers; new trials start or wait as the control file says.

        Raises:
            UserError: no worker starts.
            OSError: the directory can't be used.
        """
        self._obey(self._control.poll())
        await self.pool.start()
        self._following = asyncio.create_task(self._follow(), name="control file")

    @override
    async def close(self) -> None:
        """End all trials and workers."""
        if self._following is not None:
            self._following.cancel()
        await super().close()
        await self.pool.stop()

    async def run(self, hosted: HostedTrial) -> TrialEnd:
        """Run a trial when there is room for it.

        Cancelled, it ends the trial; its worker takes the sandbox down.

        Raises:
            UserError: the workers can't be kept running.
            OSError: the directory can't be used.
        """
        spec, trial = hosted.spec, hosted.spec.trial
        model = _EndpointModel(trial, hosted.endpoint, self._logs, self.pool)
        attempt = Attempt(trial, 0, model)
        self._logs.open(trial)
        try:
            self._logs.append(_queued(hosted))
            end = await self._unless_broken(self.run_attempt(Place(hosted), attempt, spec))
            if model.refused and end.decision.outcome is Outcome.AGENT_TIMEOUT:
                end = end.because(model.refused)
            self._finish(attempt, end)
            return end
        except asyncio.CancelledError:
            if not self.pool.withdraw(trial):
                self.pool.control(trial, "cancel", _SERVER_ENDED.reason)
            self._finish(attempt, TrialEnd(_SERVER_ENDED, None))
            raise
        except Exception as error:
            self._finish(attempt, TrialEnd(lost_with_worker(str(error)), None))
            raise
        finally:
            self._logs.close(trial)

    async def _unless_broken(self, attempt: Coroutine[Any, Any, TrialEnd]) -> TrialEnd:
        """The attempt's end; raises what goes wrong with the host meanwhile."""
        async with running(attempt) as trial:
            vital: list[asyncio.Future[Any]] = [self.pool.failed]
            if self._following is not None:
                vital.append(self._following)
            await asyncio.wait((trial, *vital), return_when=asyncio.FIRST_COMPLETED)
            if not trial.done():
                for one in vital:
                    if one.done():
                        one.result()
            return trial.result()

    def _finish(self, attempt: Attempt, end: TrialEnd) -> None:
        """Answer the commands that wait, and log the end; nothing may follow."""
        trial, outcome = attempt.trial, end.decision.outcome
        self.steering.over(trial, outcome, self._after_cancel)
        self._logs.append(end.event(attempt, end.decision.reward))

    # Commands

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(CONTROL_EVERY_SEC)
            self._obey(self._control.poll())

    def _obey(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if command.target == RUN:
                self._hold_or_release(command)
            elif self._attempts.get(command.target) is not None:  # else another server's
                self._logs.append(issued(command))
                self.steering.control(command)

    def _hold_or_release(self, command: Command) -> None:
        """Hold or release all trials; new ones don't start meanwhile."""
        match command.verb:
            case "pause" | "freeze" as verb:
                self.steering.hold(verb)
            case "resume":
                self.steering.release()
            case _:
                pass  # the rest of the run is Prime-RL's


def _queued(hosted: HostedTrial) -> TrialQueued:
    spec = hosted.spec
    return TrialQueued(
        trial=spec.trial,
        label=spec.trial,
        task=hosted.task,
        group=hosted.task,
        step=0,
        purpose=hosted.purpose,
        budget_sec=spec.budget_sec,
    )
