"""The engine's side of the rollout workers: processes that run trials.

Everything here runs on the engine's event loop. Handlers are called on it, one message at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tbtui.errors import UserError
from tbtui.ipc import Channel, ChannelClosedError, exit_words, spawn, wait_for_exit
from tbtui.rollout.environments.leftovers import reap_leftovers
from tbtui.rollout.messages import (
    Completion,
    CompletionDelayed,
    CompletionFailed,
    ControlTrial,
    ControlVerb,
    FromWorker,
    Heartbeat,
    SampleWanted,
    Shutdown,
    StartTrial,
    ToWorker,
    TrialDone,
    TrialSpec,
    TypeKeys,
    WorkerReady,
    WriteToAgent,
)

WorkerId = int
"""Counts from 1; a successor gets a number of its own."""

SILENCE_SEC = 30
"""A worker that sends nothing for this long, not even a heartbeat, is killed."""
START_SEC = 120
"""A worker that has not imported Harbor by then is killed."""
STOP_SEC = 20.0
"""How long a worker may take to clean up when it is asked to leave."""
LEAVE_SEC = 3.0
"""How long a worker may take to end once its channel is closed."""
_FAILED_STARTS = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerLostInfo:
    """A worker that ended without being asked to. Its trials are gone with it."""

    worker: WorkerId
    pid: int
    reason: str
    trials: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerRecycledInfo:
    """A worker that left because another had taken its place. It cost no trial."""

    worker: WorkerId
    pid: int
    reason: str


@dataclass
class _Waiting:
    """A trial that has no worker yet, and what was asked of it meanwhile."""

    spec: TrialSpec
    commands: list[ControlTrial] = field(default_factory=list)


@dataclass(eq=False)
class _Worker:
    number: WorkerId
    process: subprocess.Popen[bytes]
    channel: Channel[ToWorker, FromWorker]
    log: Path
    ready: bool = False
    trials: set[str] = field(default_factory=set)
    served: int = 0
    """Trials that it was given."""
    recycle_reason: str | None = None
    """Why it is to be replaced."""
    replaces: WorkerId | None = None
    """Who gets no more trials once this one is ready."""
    retired: bool = False
    """It gets no new trials and leaves with its last one."""
    silent_ticks: int = 0
    killed_for: str | None = None


class WorkerPool:
    """Runs trials in `n_workers` processes and replaces those that die.

    `on_message` gets every message with the number of its worker; `on_lost` gets the workers that
    died, were killed for their silence, or could not be started. An exception in either, or the
    inability to start workers, ends up in `failed`, which the engine must watch.

    A worker that holds more than `max_mb` of memory (0: no limit), or that was given `max_trials`
    trials (0: no limit), or that had to leave a hanging trial behind, is recycled: a successor is
    started, one at a time, and when that is ready the worker gets no new trials, leaves when its
    last one ends, and `on_recycled` gets to know. Until then it goes on, so there are never fewer
    than `n_workers` at work.
    """

    def __init__(
        self,
        n_workers: int,
        log_dir: Path,
        on_message: Callable[[WorkerId, FromWorker], None],
        on_lost: Callable[[WorkerLostInfo], None],
        *,
        on_recycled: Callable[[WorkerRecycledInfo], None] = lambda _: None,
        max_mb: float = 0.0,
        max_trials: int = 0,
        silence_sec: float = SILENCE_SEC,
        worker_module: str = "tbtui.rollout.worker",
    ) -> None:
        self._size = n_workers
        self._log_dir = log_dir
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_recycled = on_recycled
        self._max_mb = max_mb
        self._max_trials = max_trials
        self._silence_sec = silence_sec
        self._worker_module = worker_module
        self._workers: dict[WorkerId, _Worker] = {}
        self._last_number = 0
        self._failed_starts = 0
        self._home: dict[str, _Worker] = {}
        """Trial -> where it runs."""
        self._asked: dict[int, str] = {}
        """Request -> the trial that waits for the answer."""
        self._unplaced: dict[str, _Waiting] = {}
        self._first_ready = asyncio.Event()
        self._stopping = False
        self._spawning = asyncio.Lock()
        self._services: set[asyncio.Task[None]] = set()
        """One for each worker, until all that comes of its end is done."""
        self._watchdog: asyncio.Task[None] | None = None
        self._starting_successor: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Never has a result; its exception is what went wrong with the pool itself."""

    async def start(self) -> None:
        """Start all workers at once; returns when the first is ready for trials.

        Raises:
            UserError: none of them starts.
        """
        self._log_dir.mkdir(parents=True, exist_ok=True)
        for _ in range(self._size):
            await self._spawn()
        self._watchdog = asyncio.create_task(self._watch(), name="rollout watchdog")
        ready = asyncio.create_task(self._first_ready.wait())
        try:
            await asyncio.wait((ready, self.failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self.failed.done():
            await self.stop()
            self.failed.result()

    @property
    def pids(self) -> dict[WorkerId, int]:
        """The living workers' processes."""
        return {worker.number: worker.process.pid for worker in self._workers.values()}

    def start_trial(self, spec: TrialSpec) -> None:
        """Start a trial on the least loaded worker, as soon as one is ready.

        Raises:
            ValueError: a trial of that name is running or waiting.
        """
        if spec.trial in self._home or spec.trial in self._unplaced:
            raise ValueError(f"trial {spec.trial} is running")
        self._unplaced[spec.trial] = _Waiting(spec)
        self._place()

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool:
        """Pass a command on; False if no such trial is running or waiting."""
        command = ControlTrial(trial, verb, reason)
        if trial in self._unplaced:
            self._unplaced[trial].commands.append(command)
            return True
        worker = self._home.get(trial)
        return worker is not None and self._post(worker, command)

    def type_keys(self, keys: TypeKeys) -> bool:
        """Pass on what a person types; False if no such trial is running."""
        worker = self._home.get(keys.trial)
        return worker is not None and self._post(worker, keys)

    def write(self, message: WriteToAgent) -> bool:
        """Pass on what a person writes to the agent; False if no such trial is running."""
        worker = self._home.get(message.trial)
        return worker is not None and self._post(worker, message)

    def withdraw(self, trial: str) -> bool:
        """Forget a trial that waits for a worker; False if it does not wait."""
        return self._unplaced.pop(trial, None) is not None

    def reply(self, answer: Completion | CompletionFailed) -> bool:
        """Send an answer to the worker that asked; False if it is not waiting any more."""
        worker = self._home.get(self._asked.pop(answer.request, ""))
        return worker is not None and self._post(worker, answer)

    def delay(self, delayed: CompletionDelayed) -> bool:
        """Pass on that an answer is delayed, or no longer; False if it is no longer awaited."""
        worker = self._home.get(self._asked.get(delayed.request, ""))
        return worker is not None and self._post(worker, delayed)

    async def stop(self) -> None:
        """End all workers and wait for them; they cancel their trials and clean up after them."""
        self._stopping = True
        self._unplaced.clear()
        if self._watchdog is not None:
            self._watchdog.cancel()
        async with self._spawning:  # a worker that is being started is one of these then
            workers = list(self._workers.values())
        for worker in workers:
            if worker.ready:
                self._post(worker, Shutdown())
            else:
                # It would hear nothing before it has imported Harbor, and has nothing to clean up.
                _kill(worker.process)
        await asyncio.gather(*(self._wait_or_kill(worker) for worker in workers))
        await asyncio.gather(*self._services, return_exceptions=True)
        # What a worker could not take down in time, or had given up before.
        await self._reap(*(worker.process.pid for worker in workers))

    async def _reap(self, *ended: int) -> None:
        """Write off the sandboxes of workers that have ended."""
        await asyncio.to_thread(reap_leftovers, ended=ended)

    # Workers

    async def _spawn(self, replaces: WorkerId | None = None) -> None:
        async with self._spawning:
            if self._stopping:
                return
            self._last_number += 1
            number = self._last_number
            log = self._log_dir / f"worker-{number}.log"
            with log.open("ab") as output:
                process, sock = spawn(self._worker_module, [str(number)], log=output)
            channel: Channel[ToWorker, FromWorker] = await Channel.over(sock)
            worker = _Worker(number, process, channel, log, replaces=replaces)
            self._workers[number] = worker
            service = asyncio.create_task(self._serve(worker), name=f"rollout worker {number}")
            self._services.add(service)
            service.add_done_callback(self._services.discard)

    async def _serve(self, worker: _Worker) -> None:
        try:
            async for message in worker.channel:
                self._receive(worker, message)
            await self._on_exit(worker)
        except Exception as error:  # noqa: BLE001  it is passed on to the pool's owner
            self._fail(error)

    def _receive(self, worker: _Worker, message: FromWorker) -> None:
        worker.silent_ticks = 0
        match message:
            case WorkerReady():
                worker.ready = True
                self._failed_starts = 0
                self._first_ready.set()
                if (old := self._workers.get(worker.replaces or 0)) is not None:
                    self._retire(old)
                self._place()
            case Heartbeat():
                self._recycle_if_due(worker, message)
            case SampleWanted():
                self._asked[message.request] = message.trial
            case TrialDone():
                worker.trials.discard(message.trial)
                self._forget(message.trial)
                self._leave_if_idle(worker)
                self._place()
            case _:
                pass
        self._on_message(worker.number, message)

    async def _on_exit(self, worker: _Worker) -> None:
        # Without its channel the process is dead, on its way out, or of no use.
        await self._wait_or_kill(worker, STOP_SEC if self._stopping else LEAVE_SEC)
        await worker.channel.close()
        del self._workers[worker.number]
        trials = tuple(sorted(worker.trials))
        for trial in trials:
            self._forget(trial)
        if not self._stopping:
            # Its sandboxes ended with it, but are still written down.
            await self._reap(worker.process.pid)
        if self._stopping:  # perhaps since then
            return
        if worker.retired and not trials and worker.killed_for is None:
            why = worker.recycle_reason or "no longer needed"
            self._on_recycled(WorkerRecycledInfo(worker.number, worker.process.pid, why))
            return
        reason = worker.killed_for or exit_words(worker.process.returncode)
        _log.warning("rollout worker %d lost: %s", worker.number, reason)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _FAILED_STARTS * self._size:
                raise UserError(f"rollout workers don't start: {_last_line(worker.log)}")
        self._on_lost(WorkerLostInfo(worker.number, worker.process.pid, reason, trials))
        # A successor stands in for the one that it was started to replace.
        if sum(not other.retired for other in self._workers.values()) < self._size:
            await self._spawn()
        self._place()

    # Recycling

    def _recycle_if_due(self, worker: _Worker, beat: Heartbeat) -> None:
        if worker.recycle_reason is None:
            # A fresh one that is over the limit would only be followed by another.
            if self._max_mb and worker.served and beat.rss_mb > self._max_mb:
                worker.recycle_reason = f"it held {beat.rss_mb:.0f} MB, of {self._max_mb:.0f} MB"
            elif self._max_trials and worker.served >= self._max_trials:
                worker.recycle_reason = f"it has run {worker.served} trials"
            elif beat.left_behind:
                worker.recycle_reason = f"{beat.left_behind} of its trials hang"
        due = worker.recycle_reason is not None and not worker.retired
        if due and not self._successor_starts():
            self._starting_successor = asyncio.create_task(
                self._start_successor(worker), name=f"successor of rollout worker {worker.number}"
            )

    def _successor_starts(self) -> bool:
        """One at a time: an importing worker costs a core for seconds."""
        starting = self._starting_successor
        return (starting is not None and not starting.done()) or any(
            worker.replaces is not None and not worker.ready for worker in self._workers.values()
        )

    async def _start_successor(self, worker: _Worker) -> None:
        try:
            if worker.number in self._workers:
                await self._spawn(replaces=worker.number)
        except OSError as error:
            _log.error("no successor for rollout worker %d: %s", worker.number, error)

    def _retire(self, worker: _Worker) -> None:
        worker.retired = True
        self._leave_if_idle(worker)

    def _leave_if_idle(self, worker: _Worker) -> None:
        if worker.retired and not worker.trials:
            self._post(worker, Shutdown())

    async def _wait_or_kill(self, worker: _Worker, patience_sec: float = STOP_SEC) -> None:
        if await wait_for_exit(worker.process, patience_sec) is None:
            _log.error("rollout worker %d does not leave and is killed", worker.number)
            _kill(worker.process)
            await wait_for_exit(worker.process, STOP_SEC)

    async def _watch(self) -> None:
        # Ticks are counted, not seconds: if this loop stood still itself, it proves nothing.
        while True:
            await asyncio.sleep(1.0)
            for worker in tuple(self._workers.values()):
                worker.silent_ticks += 1
                limit = self._silence_sec if worker.ready else START_SEC
                if worker.silent_ticks > limit and worker.killed_for is None:
                    worker.killed_for = f"silent for {limit:g} s, killed"
                    _kill(worker.process)

    # Trials

    def _place(self) -> None:
        while self._unplaced:
            ready = [w for w in self._workers.values() if w.ready and not w.retired]
            if not ready or self._stopping:
                return
            worker = min(ready, key=lambda candidate: len(candidate.trials))
            # Workers that are about to be ready get their share, so a batch is spread evenly.
            fair = -(-(len(self._home) + len(self._unplaced)) // self._size)
            if len(worker.trials) >= fair:
                return
            trial = next(iter(self._unplaced))
            waiting = self._unplaced.pop(trial)
            worker.trials.add(trial)
            worker.served += 1
            self._home[trial] = worker
            self._post(worker, StartTrial(waiting.spec))
            for command in waiting.commands:
                self._post(worker, command)

    def _forget(self, trial: str) -> None:
        self._home.pop(trial, None)
        for request in [r for r, asker in self._asked.items() if asker == trial]:
            del self._asked[request]

    def _post(self, worker: _Worker, message: ToWorker) -> bool:
        # A worker that is dying loses what it is sent; its trials are reported lost all the same.
        try:
            worker.channel.post(message)
        except ChannelClosedError:
            return False
        return True

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # watched or not, no complaint when it is collected
        else:
            _log.error("another failure of the rollout pool", exc_info=error)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a process group of its own


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")[-50:]
    return next((line.strip() for line in reversed(lines) if line.strip()), f"see {log}")
