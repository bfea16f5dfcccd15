"""One run from its first event to its last: puts the parts together and takes them apart."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import IO, Any

from tbtui.catalog.tasks import TaskInfo
from tbtui.config import ConfigError, RunConfig, to_json
from tbtui.engines.continuation import continue_run
from tbtui.engines.grpo.alarms import AlarmWatch, alarm_actions
from tbtui.engines.grpo.checkpoints import CheckpointError, CheckpointKeeper, fixed_settings
from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.engines.grpo.failures import HaltError
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.engines.grpo.rollouts import TrialSettings
from tbtui.engines.grpo.sampling import SamplingLimits
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.engines.honoured import require_consistent, require_honoured
from tbtui.engines.monitor import Monitor
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.trackers import close_all, trackers_for
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.events import (
    EvalFinished,
    Noted,
    Purpose,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    TaskRecord,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.writer import JournalError, JournalWriter
from tbtui.policies.base import Policy, PolicyError
from tbtui.policies.local.client import LocalPolicy
from tbtui.rollout.environments.ledger import reap_leftovers
from tbtui.rollout.messages import EnvironmentSpec
from tbtui.rollout.pool import WorkerPool, WorkersFailedError

log = logging.getLogger(__name__)

FORESEEN = (CheckpointError, PolicyError, JournalError, WorkersFailedError, HaltError)
"""Errors whose message is one line for a person."""

_COLLAPSING_RATE = 4e-4


PolicyFactory = Callable[[RunConfig, IO[bytes]], Policy]
"""Makes the policy that a config names, not started yet; what it writes goes to the file."""


def make_policy(config: RunConfig, log_file: IO[bytes]) -> Policy:
    match config.policy:
        case "local":
            return LocalPolicy(config.checkpoint, model_name=config.model_name, log=log_file)


class Run:
    """A prepared run. Everything here happens on one event loop."""

    def __init__(self, prepared: PreparedRun, policy: PolicyFactory = make_policy) -> None:
        self._prepared = prepared
        self._make_policy = policy
        self._engine: GrpoEngine | None = None
        self._early: list[Command] = []
        """Commands that came before there was an engine to carry them out."""

    def submit(self, command: Command) -> None:
        if self._engine is None:
            self._early.append(command)
        else:
            self._engine.submit(command)

    async def run(self) -> RunEnd:
        """Train to the end, or until cancelled; always cleans up, never raises.

        This is the one place that turns a failure into how the run ended.
        """
        try:
            with JournalWriter(
                self._prepared.directory, continues=self._prepared.resumed
            ) as journal:
                end = await self._journalled(journal)
                status = "failed" if end.status == "refused" else end.status
                journal.append(RunFinished(status=status, reason=end.reason))
        except JournalError as error:
            return RunEnd("failed", str(error))
        return end

    async def _journalled(self, journal: JournalWriter) -> RunEnd:
        try:
            return RunEnd("finished", await self._train(journal))
        except asyncio.CancelledError:
            return RunEnd("interrupted", "everything is cleaned up")
        except ConfigError as error:
            return RunEnd("refused", str(error))
        except Exception as error:
            log.exception("the run failed")
            return RunEnd("failed", _reason(error))

    async def _train(self, journal: JournalWriter) -> str:
        prepared, config = self._prepared, self._prepared.config
        self._starting(journal, "loading the policy")
        async with contextlib.AsyncExitStack() as stack:
            logs = prepared.directory.path / "logs"
            logs.mkdir(exist_ok=True)
            log_file = stack.enter_context((logs / "policy.log").open("ab"))
            policy = self._make_policy(config, log_file)
            stack.push_async_callback(policy.close)
            await policy.start()
            warnings = _warnings(prepared) + require_honoured(config, policy.info)
            watch = AlarmWatch(alarm_actions(config.on_alarm))
            start = StartingPoint()
            if prepared.resumed:
                reader = stack.enter_context(contextlib.closing(JournalReader(prepared.directory)))
                start = await self._continued(policy, journal, reader, watch)
            else:
                journal.append(started_event(prepared, policy))
            await stack.enter_async_context(self._tracking(journal))
            for text in warnings:
                journal.append(Noted(level="warning", text=text))

            self._starting(journal, "starting workers: importing Harbor takes a few seconds")
            await asyncio.to_thread(reap_leftovers)
            runner = TrialRunner(
                trial_settings(prepared, policy),
                policy,
                journal,
                lambda runner: WorkerPool(
                    config.n_workers,
                    logs,
                    runner.on_message,
                    runner.on_worker_lost,
                    max_mb=config.worker_max_mb,
                    max_trials=config.worker_max_trials,
                    on_recycled=runner.on_worker_recycled,
                ),
            )
            pool = await stack.enter_async_context(_running(runner.pool))
            monitor = Monitor(journal, policy.status, lambda: _processes(pool, policy))
            await stack.enter_async_context(_in_background(monitor))

            keeper = CheckpointKeeper(
                prepared.directory,
                journal,
                policy,
                config.keep_checkpoints,
                fixed_settings(config),
                keep_best=config.max_steps > 0,
            )
            engine = GrpoEngine(
                config,
                prepared.split,
                policy,
                runner,
                journal,
                keeper,
                watch.see,
                start,
            )
            self._engine = engine
            for command in self._early:
                engine.submit(command)
            try:
                return await _unless(pool.failed, engine.run())
            finally:
                self._engine = None
                journal.append(RunPhaseChanged(phase=RunPhase.STOPPING, step=engine.step))

    async def _continued(
        self, policy: Policy, journal: JournalWriter, reader: JournalReader, watch: AlarmWatch
    ) -> StartingPoint:
        started = started_event(self._prepared, policy)
        start = await continue_run(self._prepared, policy, journal, reader, started)
        # What the first part raised alarms about was said then.
        after = 0
        while entries := reader.read_kinds(["step_finished", "eval_finished"], after):
            after = entries[-1].seq
            for entry in entries:
                assert isinstance(entry.event, StepFinished | EvalFinished)
                watch.see(entry.event)
        return start

    @contextlib.asynccontextmanager
    async def _tracking(self, journal: JournalWriter) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def told(problem: str) -> None:
            loop.call_soon_threadsafe(journal.append, Noted(level="warning", text=problem))

        trackers = trackers_for(self._prepared.config, self._prepared.directory, told)
        for tracker in trackers:
            tracker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(close_all, trackers)

    def _starting(self, journal: JournalWriter, detail: str) -> None:
        journal.append(RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail=detail))


def started_event(prepared: PreparedRun, policy: Policy) -> RunStarted:
    split = prepared.split
    uses: tuple[tuple[Purpose, tuple[TaskInfo, ...]], ...] = (
        ("train", split.train),
        ("eval", split.heldout),
    )
    return RunStarted(
        run=prepared.directory.name,
        pid=os.getpid(),
        host=socket.gethostname(),
        tbtui_version=importlib.metadata.version("tbtui"),
        harbor_version=importlib.metadata.version("harbor"),
        policy=policy.info.name,
        model_name=policy.info.model_name,
        parameters=policy.info.parameters,
        context_limit=policy.info.context_limit,
        environment=prepared.environment.name,
        environment_reason=prepared.environment.reason,
        tasks_dir=str(prepared.tasks_dir),
        tasks=tuple(
            TaskRecord(name=task.name, kind=task.kind, difficulty=task.difficulty, split=purpose)
            for purpose, tasks in uses
            for task in tasks
        ),
        settings=to_json(prepared.config),
    )


def trial_settings(prepared: PreparedRun, policy: Policy) -> TrialSettings:
    config, environment = prepared.config, prepared.environment
    return TrialSettings(
        trials_dir=prepared.directory.trials,
        environment=EnvironmentSpec(
            environment.type, environment.import_path, dict(environment.kwargs)
        ),
        model_name=policy.info.model_name,
        max_turns=config.max_turns,
        trial_timeout_sec=config.trial_timeout_sec,
        limits=SamplingLimits(policy.info.context_limit, config.max_tokens),
        max_retries=config.max_retries,
        n_parallel=config.n_parallel_envs,
        outcomes=outcome_policy(config.on_outcome),
        retry_wait_sec=config.retry_wait_sec,
        halt_after=config.halt_after,
        sample_timeout_sec=config.sample_timeout_sec,
        starts_per_sec=config.env_starts_per_sec,
        keep=config.keep,
        enable_summarize=config.enable_summarize,
        proactive_summarization_threshold=config.proactive_summarization_threshold,
    )


def _warnings(prepared: PreparedRun) -> list[str]:
    config = prepared.config
    warnings = [f"{defect.path}: {defect.message}; {defect.remedy}" for defect in prepared.defects]
    warnings += outcome_policy(config.on_outcome).warnings()
    warnings += require_consistent(config)
    if config.oversample and config.oversample_keep == "first_finished":
        warnings.append(
            "oversample_keep=first_finished: the first trials to finish fill a group, so short"
            " ones are trained on more often"
        )
    # Measured: two of five runs at this rate fell to a fraction of what they had reached.
    if config.policy == "local" and config.learning_rate >= _COLLAPSING_RATE:
        warnings.append(
            f"learning_rate={config.learning_rate:g}: from {_COLLAPSING_RATE:g} on the embedded"
            " policy has been seen to collapse; 2e-4 learns well"
        )
    return warnings


@contextlib.asynccontextmanager
async def _running(pool: WorkerPool) -> AsyncIterator[WorkerPool]:
    try:
        await pool.start()
        yield pool
    finally:
        await pool.stop()


@contextlib.asynccontextmanager
async def _in_background(monitor: Monitor) -> AsyncIterator[None]:
    task = asyncio.create_task(monitor.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _processes(pool: WorkerPool, policy: Policy) -> list[tuple[str, int]]:
    processes = [("engine", os.getpid())]
    processes += [(f"worker {worker}", pid) for worker, pid in pool.pids.items()]
    if pid := policy.status().pid:
        processes.append(("policy", pid))
    return processes


async def _unless(failure: asyncio.Future[None], work: Coroutine[Any, Any, str]) -> str:
    """The result of `work`, unless `failure` comes first: then that is raised."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task, failure), return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            failure.result()
        return await task
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _reason(error: BaseException) -> str:
    """One line. Trials fail together, as a group of errors: the first one tells."""
    if isinstance(error, BaseExceptionGroup):
        return _reason(error.exceptions[0])
    if isinstance(error, FORESEEN):
        return str(error)
    return f"{type(error).__name__}: {error} (see log.txt)"
