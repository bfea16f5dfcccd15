"""One run from its first event to its last; it goes on with a new policy if one is lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from tbtui.config import ConfigError
from tbtui.engines.alerts import alerting_of
from tbtui.engines.awaiting import comes_before
from tbtui.engines.command_queue import CommandQueue, answered_outside
from tbtui.engines.events_of import issued
from tbtui.engines.grpo.failures import PolicyRestartLimit
from tbtui.engines.grpo.recorded import RUN_ENDED_FIRST
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.session import Makers, PoolFactory, Session, worker_pool
from tbtui.engines.trackers import close_all, trackers_for
from tbtui.errors import UserError
from tbtui.journal.commands import RUN, Command, RunEnd
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    CommandDone,
    Noted,
    PolicyLost,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
)
from tbtui.journal.rundir import RunDirectoryError
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import PolicyError, PolicyLostError
from tbtui.policies.registry import PolicyFactory
from tbtui.policies.registry import make_policy as make_policy
from tbtui.rollout.environments.snapshots import held_snapshots

log = logging.getLogger(__name__)


class Run:
    """A prepared run. Everything here happens on one event loop."""

    def __init__(
        self,
        prepared: PreparedRun,
        policy: PolicyFactory = make_policy,
        pool: PoolFactory = worker_pool,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`sleep` waits so many seconds before a lost policy is made afresh."""
        self._prepared = prepared
        self._makers = Makers(policy, pool)
        self._sleep = sleep
        self._at_once = asyncio.Event()
        """Set when a lost policy is to be made afresh now."""
        self._commands = CommandQueue()

    def submit(self, command: Command) -> None:
        self._commands.submit(command)
        if not self._commands.served and (command.target, command.verb) == (RUN, "resume"):
            self._at_once.set()

    async def run(self) -> RunEnd:
        """Train to the end, or until cancelled; always cleans up, never raises.

        This is the one place that turns a failure into how the run ended.
        """
        try:
            with JournalWriter(
                self._prepared.directory, continues=self._prepared.resumed
            ) as journal:
                async with alerting_of(
                    self._prepared.config, self._prepared.directory, journal.append
                ):
                    end = await self._journalled(journal)
                    self._answer_what_waits(journal)
                    status = "failed" if end.status == "refused" else end.status
                    journal.append(RunFinished(status=status, reason=end.reason))
                    written = journal.flush()
                if not written:
                    text = f"{end.reason}; the journal can't be written ({journal.blocked}): what"
                    return RunEnd(
                        "failed",
                        f"{text} it lacks is done again by --resume, once there is room",
                    )
        except RunDirectoryError as error:  # another process was faster
            return RunEnd("refused" if self._prepared.resumed else "failed", str(error))
        except JournalError as error:
            return RunEnd("failed", str(error))
        return end

    async def _journalled(self, journal: JournalWriter) -> RunEnd:
        try:
            return RunEnd("finished", await self._train(journal))
        except asyncio.CancelledError as error:
            # Who cancels may say why.
            return RunEnd("interrupted", str(error) or "everything is cleaned up")
        except ConfigError as error:
            return RunEnd("refused", str(error))
        except Exception as error:
            log.exception("the run failed")
            return RunEnd("failed", _reason(error))

    async def _train(self, journal: JournalWriter) -> str:
        prepared = self._prepared
        losses = PolicyRestartLimit(prepared.config.policy_restarts, prepared.directory.path)
        logs = prepared.directory.path / "logs"
        logs.mkdir(exist_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            log_file = stack.enter_context((logs / "policy.log").open("ab"))
            keep = prepared.config.keep_snapshots
            held = held_snapshots(prepared.directory.path / "snapshots", keep=keep)
            await stack.enter_async_context(held)
            loss: PolicyLostError | None = None
            warned = False
            while True:
                session = Session(self._prepared, self._makers, journal, log_file, self._commands)
                down = False
                try:
                    async with session:
                        try:
                            warnings = await session.begin(after_loss=loss is not None)
                            if not warned:
                                warned = True
                                await stack.enter_async_context(self._tracking(journal))
                                for text in warnings:
                                    journal.append(Noted(level="warning", text=text))
                            return await session.train()
                        except PolicyError as error:
                            # Closing the policy ends what its server says of itself.
                            down = session.server_down
                            began = session.began
                            if down and began and not isinstance(error, PolicyLostError):
                                raise PolicyLostError(str(error)) from error
                            raise
                except PolicyLostError as error:
                    log.warning("the policy was lost", exc_info=error)
                    loss = error
                # What was changed while it ran holds for the next one too.
                self._prepared = dataclasses.replace(self._prepared, config=session.config)
                await self._wait_after(loss, losses, session.trained, journal, server_down=down)

    async def _wait_after(
        self,
        loss: PolicyLostError,
        losses: PolicyRestartLimit,
        trained: int,
        journal: JournalWriter,
        *,
        server_down: bool,
    ) -> None:
        """Journal the loss and wait until a new policy may be made, or a person resumes the run."""
        wait = losses.lost(trained, str(loss), server_down=server_down)
        step = losses.trained
        journal.append(PolicyLost(step=step, reason=str(loss), wait_sec=wait))
        detail = f"the policy was lost; a new one in {wait:.0f} s"
        journal.append(RunPhaseChanged(phase=RunPhase.STARTING, step=step, detail=detail))
        self._at_once.clear()
        asked = asyncio.create_task(self._at_once.wait())
        try:
            await comes_before(self._slept(wait), asked)
        finally:
            asked.cancel()

    async def _slept(self, seconds: float) -> None:
        await self._sleep(seconds)

    def _answer_what_waits(self, journal: JournalWriter) -> None:
        """Refuse commands that no engine will carry out any more."""
        for command in self._commands.take_new():
            journal.append(issued(command))
            done = answered_outside(command)
            result = done or RUN_ENDED_FIRST
            journal.append(CommandDone(command=command.id, ok=done is not None, result=result))

    @contextlib.asynccontextmanager
    async def _tracking(self, journal: JournalWriter) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def warn(problem: str) -> None:
            # The run may be over by now; the log has it then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(journal.append, Noted(level="warning", text=problem))

        trackers = trackers_for(self._prepared.config, self._prepared.directory, warn)
        for tracker in trackers:
            tracker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(close_all, trackers)


def _reason(error: BaseException) -> str:
    """Why a run failed, in one line: of errors raised together, the first."""
    if isinstance(error, BaseExceptionGroup):
        return _reason(error.exceptions[0])
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror} (see log.txt)"
    return f"{type(error).__name__}: {error} (see log.txt)"
