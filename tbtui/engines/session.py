"""One policy from its making to its end, with the workers and the engine that train it.

A run has one session, unless its policy is lost: then it goes on in another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from tbtui.config import ConfigError, RunConfig, to_json
from tbtui.config.values import is_embedded, require_no_errors
from tbtui.engines.awaiting import in_background, running
from tbtui.engines.command_queue import CommandQueue
from tbtui.engines.events_of import task_records
from tbtui.engines.gpus import GPUS_LOST, GpuMonitor
from tbtui.engines.grpo.checkpoint_state import fixed_settings
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.config_checks import fitted_to_model, grpo_problems, unsupported
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.engines.grpo.examples import examples_of
from tbtui.engines.grpo.outcome_policy import AlarmWatch, outcome_policy
from tbtui.engines.grpo.pausing import Outages
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.engines.grpo.recovery import continue_run, newest
from tbtui.engines.grpo.storage_guard import StorageGuard
from tbtui.engines.grpo.trials import TrialRunner, TrialSettings
from tbtui.engines.monitor import VLLM, Monitor, Roots
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.prices import expected_cost
from tbtui.engines.probe_arms import agents_of
from tbtui.engines.task_fitness import offer
from tbtui.engines.trials.running import RunningTrials
from tbtui.engines.trials.steering import Pool
from tbtui.journal.events import (
    EvalFinished,
    Noted,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    TasksSetAside,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.writer import JournalWriter
from tbtui.policies import sampling_of
from tbtui.policies.base import (
    Ended,
    Policy,
    PolicyError,
    PolicyInfo,
    PolicyLostError,
    PolicyRefusedError,
)
from tbtui.policies.registry import PolicyFactory
from tbtui.rollout.environments.leftovers import reap_leftovers
from tbtui.rollout.messages import EnvironmentSpec
from tbtui.rollout.pool import WorkerPool
from tbtui.sampling import SamplingSettings
from tbtui.server_status import DOWN
from tbtui.terminal import counted

log = logging.getLogger(__name__)


class RunPool(Pool, Protocol):
    """Worker processes; `rollout.pool.WorkerPool` is the one that a run uses."""

    @property
    def failed(self) -> asyncio.Future[None]: ...

    @property
    def pids(self) -> Mapping[int, int]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


PoolFactory = Callable[[PreparedRun, RunningTrials[Any]], RunPool]


def worker_pool(prepared: PreparedRun, runner: RunningTrials[Any]) -> WorkerPool:
    config = prepared.config
    return WorkerPool(
        config.n_workers,
        prepared.directory.path / "logs",
        runner.on_message,
        runner.on_worker_lost,
        max_mb=config.worker_max_mb,
        max_trials=config.worker_max_trials,
        on_recycled=runner.on_worker_recycled,
    )


_LOOK_SEC = 0.5
"""How often a policy that starts is asked what it waits for."""


@dataclass(frozen=True, slots=True)
class Makers:
    """What a session is made of."""

    policy: PolicyFactory
    pool: PoolFactory


class Session:
    """Policy, workers and engine together: enter it, `begin`, `train`; leaving it ends them all."""

    def __init__(
        self,
        prepared: PreparedRun,
        makers: Makers,
        journal: JournalWriter,
        log_file: IO[bytes],
        queue: CommandQueue,
    ) -> None:
        """
        Args:
            log_file: gets what the policy writes.
            queue: the run's; its commands wait while there is no engine.
        """
        self._prepared = prepared
        self._makers = makers
        self._journal = journal
        self._queue = queue
        self._stack = contextlib.AsyncExitStack()
        self._watch = AlarmWatch(prepared.config.on_alarm, SamplingSettings())
        """It knows how the policy samples once that has started."""
        self._start = StartingPoint()
        self._engine: GrpoEngine | None = None
        self._pool: RunPool | None = None
        self.began = False
        """The policy has started, and the run is in the journal."""
        self.policy = makers.policy(prepared.config, log_file)

    async def __aenter__(self) -> Session:
        self._stack.push_async_exit(self._close_policy)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    @property
    def server_down(self) -> bool:
        """The policy's server is paused or out of reach."""
        server = self.policy.status().server
        return server is not None and server.state in DOWN

    @property
    def trained(self) -> int:
        """The last step that the run has ever trained."""
        return max(self._start.trained, self._engine.step if self._engine else 0)

    @property
    def config(self) -> RunConfig:
        """The settings in force."""
        return self._engine.config if self._engine else self._prepared.config

    async def begin(self, *, after_loss: bool) -> list[str]:
        """Start the policy and journal how the run begins, or goes on from its last checkpoint.

        Returns what a person should know before it goes on.

        Raises:
            PolicyError: the policy can't start; `after_loss` a `PolicyLostError`, for another
                attempt may find its server up again.
            ConfigError: it can't honour a setting, or can't be had as the settings ask.
            CheckpointError, UserError: the run can't go on from what there is.
        """
        config = self._prepared.config
        here = config.policy in ("local", "torch")
        doing = "loading the policy" if here else "connecting to the server"
        self._phase(RunPhase.STARTING, doing)
        if not after_loss:
            for text in self._prepared.preflight:
                self._journal.append(Noted(level="info", text=text))
        # From the start on: a server may let one wait for long.
        monitor = Monitor(self._journal, self.policy.status, self._processes)
        await self._monitored(monitor, "the policy's queue and memory are not measured")
        gpus = GpuMonitor(self._journal.append, config.gpu_hosts, processes=self._processes)
        await self._monitored(gpus, GPUS_LOST)
        try:
            resume = None
            if self._prepared.resumed or after_loss:
                checkpoint, _ = await asyncio.to_thread(newest, self._prepared)
                resume = checkpoint.path if checkpoint else None
            await self._start_policy(resume)
            self._watch = AlarmWatch(config.on_alarm, _sampling_facts(config, self.policy.info))
            warnings = warnings_of(self._prepared, self.policy)
            if self._prepared.resumed or after_loss:
                await self._go_on(after_loss)
            else:
                self._journal.append(started_event(self._prepared, self.policy))
                if unusable := self._prepared.unusable:
                    self._journal.append(TasksSetAside.of(unusable, "preflight"))
                    self._start = StartingPoint(unusable=unusable)
        except PolicyRefusedError as error:
            if not after_loss:
                raise ConfigError(str(error)) from error
            raise PolicyLostError(str(error)) from error
        except PolicyError as error:
            if after_loss and not isinstance(error, PolicyLostError):
                raise PolicyLostError(str(error)) from error
            raise
        self.began = True
        return warnings

    async def _start_policy(self, resume: Path | None) -> None:
        """Start the policy, and journal what it waits for meanwhile."""

        async def watch() -> None:
            shown = ""
            while True:
                await asyncio.sleep(_LOOK_SEC)
                doing = self.policy.status().starting
                if doing and doing != shown:
                    self._phase(RunPhase.STARTING, doing)
                    shown = doing

        lost = "what the policy waits for is not shown"
        async with in_background(watch(), lost, self._journal.append):
            await self.policy.start(resume)

    async def _go_on(self, after_loss: bool) -> None:
        reader = JournalReader(self._prepared.directory)
        self._stack.callback(reader.close)
        self._start = await continue_run(
            self._prepared,
            self.policy,
            self._journal,
            reader,
            started_event(self._prepared, self.policy),
            policy_lost=after_loss,
        )
        # Alarms that these raise were journalled then.
        for entry in reader.each(["step_finished", "eval_finished"]):
            assert isinstance(entry.event, StepFinished | EvalFinished)
            self._watch.see(entry.event)

    async def train(self) -> str:
        """Train to the end; returns one line that sums it up.

        Raises:
            PolicyLostError: the run can go on in another session.
            HaltError, PolicyError, CheckpointError, JournalError, UserError
        """
        prepared, config = self._prepared, self._prepared.config
        self._phase(RunPhase.STARTING, "starting workers: importing Harbor takes a few seconds")
        await asyncio.to_thread(reap_leftovers)
        cost = expected_cost(config, self.policy.info.context_limit)
        if cost is not None and not self._start.step:
            self._journal.append(Noted(level="info", text=f"cost: {cost}"))
        guard = StorageGuard(prepared.directory.path, self._journal, Outages(self._journal))
        run = EngineContext(
            fitted_to_model(config, self.policy.info),
            prepared.split,
            self.policy,
            self._journal,
            self._start,
        )
        make_pool = functools.partial(self._makers.pool, prepared)
        runner = TrialRunner(run, trial_settings(prepared, self.policy), make_pool, guard)
        self._stack.push_async_callback(runner.close)
        pool = await self._stack.enter_async_context(_running(runner.pool))
        self._pool = pool
        keeper = CheckpointKeeper(
            self._journal,
            self.policy,
            config.keep_checkpoints,
            fixed_settings(config),
            keep_best=config.max_steps > 0,
        )
        await self._monitored(guard, "the run directory is not looked after")
        if "shell" in agents_of(config) and config.agent_examples != "0":
            self._phase(RunPhase.STARTING, "performing examples for the agent's prompt")
            runner.show_examples(await _unless(pool.failed, examples_of(run, runner.perform)))
        self._engine = GrpoEngine(run, runner, keeper, self._watch.see, self._queue)
        phase, detail = RunPhase.STOPPING, ""
        try:
            return await _unless(pool.failed, self._engine.run())
        except PolicyLostError:
            phase, detail = RunPhase.STARTING, "the policy was lost: its trials are taken down"
            raise
        finally:
            self._queue.hold()
            self._phase(phase, detail)

    async def _monitored(self, monitor: Monitor | GpuMonitor | StorageGuard, lost: str) -> None:
        """Run a monitor until the session ends; `lost`: what is missing without it."""
        watching = in_background(monitor.run(), lost, self._journal.append)
        await self._stack.enter_async_context(watching)

    def _processes(self) -> Roots:
        processes = [("engine", os.getpid())]
        if self._pool is not None:
            processes += [(f"worker {worker}", pid) for worker, pid in self._pool.pids.items()]
        status = self.policy.status()
        if status.pid:
            processes.append(("policy" if status.sampler_pid is None else "trainer", status.pid))
        if status.sampler_pid:
            role = "sampler" if status.server is None else VLLM
            processes.append((role, status.sampler_pid))
        return processes

    def _phase(self, phase: RunPhase, detail: str) -> None:
        step = self._engine.step if self._engine else self._start.step
        self._journal.append(RunPhaseChanged(phase=phase, step=step, detail=detail))

    async def _close_policy(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.policy.close(_ended(kind))
        except PolicyError as closing:
            # How the session ends is known already, and of a lost policy nothing else is expected.
            log.warning("closing the policy: %s", closing)


def _ended(kind: type[BaseException] | None) -> Ended:
    if kind is None:
        return "success"
    return "errored" if issubclass(kind, Exception) else "interrupted"


@contextlib.asynccontextmanager
async def _running(pool: RunPool) -> AsyncIterator[RunPool]:
    try:
        await pool.start()
        yield pool
    finally:
        await pool.stop()


async def _unless(failure: asyncio.Future[None], work: Coroutine[Any, Any, str]) -> str:
    """The result of `work`, unless `failure` comes first: then that is raised."""
    async with running(work) as task:
        await asyncio.wait((task, failure), return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            failure.result()
        return await task


def _sampling_facts(config: RunConfig, info: PolicyInfo) -> SamplingSettings:
    return SamplingSettings(
        config.temperature,
        thinks=bool(info.thinks),
        agent=config.agent,
        embedded=is_embedded(to_json(config)),
        examples=config.agent_examples != "0",
        truncates=sampling_of(config, config.temperature).truncates,
    )


def started_event(prepared: PreparedRun, policy: Policy) -> RunStarted:
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
        tasks=task_records(prepared.split),
        settings=to_json(fitted_to_model(prepared.config, policy.info)),
    )


def trial_settings(prepared: PreparedRun, policy: Policy) -> TrialSettings:
    config, environment = fitted_to_model(prepared.config, policy.info), prepared.environment
    return TrialSettings(
        config,
        outcome_policy(config.on_outcome),
        trials_dir=prepared.directory.trials,
        environment=EnvironmentSpec(
            environment.type,
            environment.import_path,
            dict(environment.kwargs),
            config.force_build,
        ),
        model_name=policy.info.model_name,
        context_limit=policy.info.context_limit,
        check_zeros=prepared.check_zeros,
        kill_before_verifying=prepared.kill_before_verifying,
        fixed_programs=prepared.fixed_programs,
    )


def warnings_of(prepared: PreparedRun, policy: Policy) -> list[str]:
    """Warnings for a person before the run goes on.

    Raises:
        ConfigError: a setting that can't be honoured.
    """
    config = prepared.config
    warnings = [f"{defect.path}: {defect.message}; {defect.remedy}" for defect in prepared.defects]
    if taken := prepared.fitness.taken():
        warnings.append(taken)
    if summary := prepared.fitness.summary():
        done = "are tried all the same" if config.unfit_tasks == "try" else "are left out"
        warnings.append(f"{summary}; they {done}{offer(prepared.fitness)}")
    if quarantined := prepared.quarantine:
        named = "; ".join(f"{name} ({why})" for name, why in quarantined.items())
        warnings.append(
            f"left out, for they are in quarantine: {counted(len(quarantined), 'task')}: {named}"
        )
    # Tasks that eval_tasks names are held out as asked.
    if (refused := prepared.split.refused) and not config.eval_tasks:
        warnings.append(
            f"tasks: {len(refused)} of those that were chosen are held out and not trained on:"
            f" {', '.join(refused)}"
        )
    warnings += require_no_errors(grpo_problems(config))
    warnings += require_no_errors(unsupported(config, policy.info))
    return warnings + list(policy.info.notes)
