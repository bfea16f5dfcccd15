"""Runs the trials of one environment server, in worker processes beside it.

The server's event loop also serves the model calls of all its rollouts, so Harbor, which blocks
the loop it runs on now and then, has none of it: trials run where tbtui's own do, in rollout
workers. They end with the server, however that ends, and take their sandboxes down.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.engines.grpo.admission import Admission, Slot
from tbtui.engines.prime_rl.plugin.control_file import ControlFile
from tbtui.engines.prime_rl.plugin.endpoint import Refused
from tbtui.engines.prime_rl.plugin.hosted_trial import HostedTrial, Model, TrialEnd
from tbtui.engines.prime_rl.plugin.trial_log import TrialLog
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import Outcome, Purpose, TrialQueued
from tbtui.journal.verbs import refusal
from tbtui.rollout.messages import (
    Completion,
    CompletionFailed,
    FromWorker,
    Heartbeat,
    SampleWanted,
    TrialDone,
    TrialSpec,
    WorkerReady,
)
from tbtui.rollout.outcome import Decision, decide, lost_with_worker
from tbtui.rollout.pool import WorkerLostInfo, WorkerPool

CONTROL_EVERY_SEC = 0.2
WORKER_MAX_MB = 512.0
WORKER_MAX_TRIALS = 1000
REPEATED = "verifiers repeats the rollout"
NOT_REPEATED = "Prime-RL goes on with the rest of its group, and with other tasks for the batch"
_SERVER_ENDED = Decision(Outcome.CANCELLED, None, None, "verifiers ended the rollout")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`directory` is what the servers of a run share: trials, events and the control file."""

    directory: Path
    n_parallel: int
    n_workers: int
    repeats: bool = False
    """verifiers repeats a rollout that failed."""


@dataclass(frozen=True, slots=True)
class HostedTask:
    """What a watcher is told of the task."""

    name: str
    purpose: Purpose


class TrialHost:
    """At most `n_parallel` trials at once. Used on one event loop, from `start` to `close`."""

    def __init__(self, settings: HostSettings) -> None:
        self._directory = settings.directory
        self._after_cancel = REPEATED if settings.repeats else NOT_REPEATED
        self._trials: dict[str, HostedTrial] = {}
        self._admission = Admission(settings.n_parallel, 0.0)
        self._control = ControlFile(settings.directory)
        self._following: asyncio.Task[None] | None = None
        self._pool = WorkerPool(
            settings.n_workers,
            settings.directory / "logs" / f"server-{os.getpid()}",
            lambda _, message: self._on_message(message),
            self._on_lost,
            max_mb=WORKER_MAX_MB,
            max_trials=WORKER_MAX_TRIALS,
        )

    async def start(self) -> None:
        """Start the workers; the gate is as the control file has left it.

        Raises:
            WorkersFailedError: no worker starts.
            OSError: the directory can't be used.
        """
        self._obey(self._control.poll())
        await self._pool.start()
        self._following = asyncio.create_task(self._follow(), name="control file")

    async def close(self) -> None:
        """End all trials and workers."""
        if self._following is not None:
            self._following.cancel()
        await self._pool.stop()

    async def run(self, spec: TrialSpec, task: HostedTask, model: Model) -> TrialEnd:
        """Run the trial when there is room, and tell how it ended.

        Cancelled, it ends the trial; its worker takes the sandbox down.

        Raises:
            WorkersFailedError: the workers can't be kept running.
            OSError: the directory can't be used.
        """
        loop = asyncio.get_running_loop()
        log = TrialLog(self._directory, spec.trial)
        trial = HostedTrial(spec.trial, model, log, loop.create_future(), loop.create_future())
        trial.after_cancel = self._after_cancel
        self._trials[spec.trial] = trial
        queued = started = time.monotonic()
        try:
            log.append(_queued(spec, task))
            trial.slot = await self._admitted(trial)
            started = time.monotonic()
            if trial.slot is None:
                end = TrialEnd(_by_somebody(trial, _withdrawn()), None)
            else:
                self._pool.start_trial(spec)
                end = await self._ended(trial)
            trial.finished(end, started - queued)
            return end
        except asyncio.CancelledError:
            if not self._pool.withdraw(spec.trial):
                self._pool.control(spec.trial, "cancel", _SERVER_ENDED.reason)
            trial.finished(TrialEnd(_SERVER_ENDED, None), started - queued)
            raise
        except Exception as error:
            trial.finished(TrialEnd(lost_with_worker(str(error)), None), started - queued)
            raise
        finally:
            del self._trials[spec.trial]
            for answering in trial.answering:
                answering.cancel()
            if trial.slot is not None:
                trial.slot.leave()
            log.close()

    async def _admitted(self, trial: HostedTrial) -> Slot | None:
        """A slot, or None when the trial was withdrawn before it got one."""
        entering = asyncio.ensure_future(self._admission.enter())
        try:
            await self._first_of(entering, trial.withdrawn)
        except BaseException:
            if entering.done():
                entering.result().leave()
            entering.cancel()
            raise
        if not trial.withdrawn.done():
            return entering.result()
        if entering.done():
            entering.result().leave()
        entering.cancel()
        return None

    async def _ended(self, trial: HostedTrial) -> TrialEnd:
        await self._first_of(trial.ended)
        end = trial.ended.result()
        return dataclasses.replace(end, decision=_by_somebody(trial, end.decision))

    async def _first_of(self, *awaited: asyncio.Future[Any]) -> None:
        """Until one is done; raises what went wrong with the host meanwhile."""
        vital = [self._pool.failed, *([self._following] if self._following else [])]
        await asyncio.wait((*awaited, *vital), return_when=asyncio.FIRST_COMPLETED)
        if not any(one.done() for one in awaited):
            for one in vital:
                if one.done():
                    one.result()

    # What workers say

    def _on_message(self, message: FromWorker) -> None:
        match message:
            case WorkerReady() | Heartbeat():
                return
            case _:
                trial = self._trials.get(message.trial)
        if trial is None:
            return
        match message:
            case SampleWanted():
                task = asyncio.create_task(self._answer(trial, message))
                trial.answering.add(task)
                task.add_done_callback(_answered(trial))
            case TrialDone():
                trial.end(TrialEnd(decide(message.facts), message.facts))
            case _:
                trial.heard(message)

    def _on_lost(self, lost: WorkerLostInfo) -> None:
        for name in lost.trials:
            if (trial := self._trials.get(name)) is not None:
                trial.end(TrialEnd(lost_with_worker(lost.reason), None))

    async def _answer(self, trial: HostedTrial, wanted: SampleWanted) -> None:
        match await trial.answer(wanted):
            case Refused(_, reason):
                # The agent's run is over, and what it has done is judged.
                trial.ended_because = reason
                self._pool.control(trial.trial, "expire", reason)
            case Completion() | CompletionFailed() as answer:
                self._pool.reply(answer)

    # What people ask

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(CONTROL_EVERY_SEC)
            self._obey(self._control.poll())

    def _obey(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if command.target == RUN:
                self._gate(command)
            elif (trial := self._trials.get(command.target)) is not None:
                self._steer(trial, command)

    def _gate(self, command: Command) -> None:
        """Hold or release all trials; new ones don't start meanwhile."""
        running = [trial for trial in self._trials.values() if trial.slot is not None]
        match command.verb:
            case "pause" | "freeze" as verb:
                self._admission.close()
                for trial in running:
                    self._pool.control(trial.trial, verb, "the whole run")
            case "resume":
                self._admission.open()
                for trial in running:
                    if not trial.held:
                        self._pool.control(trial.trial, "resume", "the whole run")
            case _:
                pass  # the rest of the run is Prime-RL's

    def _steer(self, trial: HostedTrial, command: Command) -> None:
        trial.issued(command)
        if why := refusal(command.verb, trial.standing(command)):
            trial.answer_command(command, False, why)
            return
        match command.verb:
            case "stop" | "cancel" if trial.slot is None:
                trial.ends(command)
                if not trial.withdrawn.done():
                    trial.withdrawn.set_result(None)
            case "pause" | "freeze" as verb:
                if trial.holds(command):
                    self._pool.control(trial.trial, verb, command.reason)
            case "resume":
                trial.releases(command)
                self._pool.control(trial.trial, "resume", command.reason)
            case "stop" | "cancel" as verb:
                trial.ends(command)
                self._pool.control(trial.trial, verb, command.reason)
            case "retry":
                trial.ends(command)
                self._pool.control(trial.trial, "cancel", command.reason)


def _answered(trial: HostedTrial) -> Callable[[asyncio.Task[None]], None]:
    def answered(task: asyncio.Task[None]) -> None:
        trial.answering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            trial.fail(error)  # not the model's failure but ours

    return answered


def _by_somebody(trial: HostedTrial, decision: Decision) -> Decision:
    if not trial.ended_because or decision.outcome not in (
        Outcome.CANCELLED,
        Outcome.AGENT_TIMEOUT,
    ):
        return decision
    return dataclasses.replace(decision, reason=trial.ended_because)


def _withdrawn() -> Decision:
    return Decision(Outcome.CANCELLED, None, None, "taken out of the queue")


def _queued(spec: TrialSpec, task: HostedTask) -> TrialQueued:
    return TrialQueued(
        trial=spec.trial,
        label=spec.trial,
        task=task.name,
        group=task.name,
        step=0,
        purpose=task.purpose,
        budget_sec=spec.budget_sec,
    )
