"""A rollout worker: a process that runs many Harbor trials on one event loop.

Started by the pool as `python -m tbtui.rollout.worker FD NUMBER`. It imports Harbor, says that it
is ready, and from then on obeys what comes over its channel. When the channel ends, because the
engine is done or dead, or on SIGTERM, it cancels its trials, which tears their sandboxes down,
and leaves. Harbor's logs and everything printed go where the pool sent stdout and stderr.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, assert_never, override

import psutil

from tbtui.awake import AwakeLoop
from tbtui.ipc import Channel, ChannelClosedError, parent_socket
from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import (
    Completion,
    CompletionDelayed,
    CompletionFailed,
    ControlRefused,
    ControlTrial,
    FinishReason,
    FromWorker,
    Heartbeat,
    Shutdown,
    StartTrial,
    ToWorker,
    TrialDone,
    TrialFacts,
    TrialSpec,
    TypeKeys,
    WorkerReady,
    WriteToAgent,
)
from tbtui.rollout.recording import Recorder
from tbtui.rollout.verdict_check import RunTrial, VerdictChecks
from tbtui.terminal import visible_lines

HEARTBEAT_SEC = 1.0
CLEAN_UP_SEC = 15.0
"""How long a worker that leaves may take to tear its sandboxes down."""
_REQUESTS_PER_WORKER = 1 << 40
_RECORD_CHARS = 16_000
"""Characters of a record of the log: a long traceback has less."""
_OPEN_FILES = 1 << 16
"""Each trial has sockets, pipes and logs, and its agent may open many connections."""

_log = logging.getLogger(__name__)


class Worker:
    """`number` is unique in the pool and makes the request numbers unique there."""

    def __init__(
        self, channel: Channel[FromWorker, ToWorker], number: int, run_trial: RunTrial
    ) -> None:
        self._channel = channel
        self._run_trial = run_trial
        self._requests = itertools.count(number * _REQUESTS_PER_WORKER)
        self._recorder = Recorder()
        self._checks = VerdictChecks(run_trial, self._recorder)
        self._links: dict[str, TrialLink] = {}
        self._tasks: dict[str, asyncio.Task[TrialFacts]] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self._left_behind: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Serve until the channel ends, `Shutdown` or cancellation; then clean up."""
        helpers = [
            asyncio.create_task(self._recorder.run()),
            asyncio.create_task(self._beat()),
        ]
        spared = asyncio.all_tasks() - set(helpers)  # tasks that wait for this one
        try:
            self._post(WorkerReady(os.getpid(), version("harbor")))
            async for message in self._channel:
                if isinstance(message, Shutdown):
                    break
                self._obey(message)
        finally:
            await self._clean_up(helpers, spared)

    def _post(self, message: FromWorker) -> None:
        try:
            self._channel.post(message)
        except ChannelClosedError:
            # The engine is gone. The reader sees the end of the channel too, and ends the trials.
            _log.debug("not sent, the engine is gone: %s", type(message).__name__)

    def _obey(
        self,
        message: StartTrial
        | ControlTrial
        | TypeKeys
        | WriteToAgent
        | Completion
        | CompletionFailed
        | CompletionDelayed,
    ) -> None:
        match message:
            case StartTrial(spec):
                self._start(spec)
            case ControlTrial():
                self._control(message)
            case TypeKeys(trial):
                if (link := self._links.get(trial)) is not None:
                    link.type_keys(message)
            case WriteToAgent(trial):
                if (link := self._links.get(trial)) is not None:
                    link.write(message)
            case Completion() | CompletionFailed():
                # An answer that comes after its trial was stopped or cancelled is dropped.
                if (link := self._links.get(message.trial)) is not None:
                    link.deliver(message)
            case CompletionDelayed():
                if (link := self._links.get(message.trial)) is not None:
                    link.delay(message)
            case _:
                assert_never(message)

    def _start(self, spec: TrialSpec) -> None:
        link = TrialLink(spec, post=self._post, requests=self._requests, recorder=self._recorder)
        task = asyncio.create_task(self._judged(link), name=spec.trial)
        self._links[spec.trial] = link
        self._tasks[spec.trial] = task
        task.add_done_callback(functools.partial(self._ended, link))

    async def _judged(self, link: TrialLink) -> TrialFacts:
        return await self._checks.examined(link, await self._run_trial(link))

    def _ended(self, link: TrialLink, task: asyncio.Task[TrialFacts]) -> None:
        trial = link.spec.trial
        del self._links[trial], self._tasks[trial]
        for left in link.left_behind:
            _log.error("%s: left behind: %s", trial, left.get_name())
            self._left_behind.add(left)
            left.add_done_callback(self._left_behind.discard)
        if task.cancelled():
            if link.control.cancelled:  # before its task had begun
                self._post(TrialDone(trial, _facts_without_harbor(link, "cancelled", None)))
        elif (error := task.exception()) is not None:
            _log.error("%s: an error of tbtui's own", trial, exc_info=error)
            self._post(TrialDone(trial, _facts_without_harbor(link, "error", error)))
        else:
            self._post(TrialDone(trial, task.result()))

    def _control(self, message: ControlTrial) -> None:
        link = self._links.get(message.trial)
        if link is None:  # it ended while the command was on its way
            return
        if (refusal := _no_turns(message, link)) is not None:
            self._post(ControlRefused(message.trial, message.verb, refusal))
            return
        link.control.obey(message.verb, message.reason)
        if message.verb == "cancel":
            cancelling = asyncio.create_task(self._cancel(link, self._tasks[message.trial]))
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)

    async def _cancel(self, link: TrialLink, task: asyncio.Task[TrialFacts]) -> None:
        await link.control.settled()
        task.cancel()

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        asleep = 0.0
        while True:
            await asyncio.sleep(HEARTBEAT_SEC)
            if isinstance(loop, AwakeLoop) and (now := loop.clock.asleep()) > asleep:
                _log.warning("nothing ran for %.0f s; no trial is charged for them", now - asleep)
                asleep = now
            self._post(Heartbeat(_resident_mb(), len(self._left_behind)))

    async def _clean_up(
        self, helpers: Sequence[asyncio.Task[None]], spared: set[asyncio.Task[Any]]
    ) -> None:
        # Whatever hangs, this process ends: its parent may be gone.
        last_resort = threading.Timer(CLEAN_UP_SEC, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        for task in (*helpers, *self._tasks.values(), *self._left_behind):
            task.cancel()
        # All tasks, not only ours: Harbor shields the tear-down of a cancelled trial's sandbox,
        # so that it goes on in a task of its own.
        while others := asyncio.all_tasks() - spared - self._left_behind:
            await asyncio.wait(others)
        last_resort.cancel()


def _no_turns(message: ControlTrial, link: TrialLink) -> str | None:
    """Why the trial can't wait at a turn's end, or can't be typed in there; None: it can."""
    agent = link.spec.agent
    if message.verb in ("pause", "take_over") and agent in ("oracle", "untouched"):
        return f"its agent ({agent}) has no turns, at whose end it could wait"
    acts = link.stage not in ("environment", "agent_setup")
    if message.verb == "take_over" and acts and not link.keyboard.attached:
        return "its sandbox has no tmux, so there is no terminal to type in"
    return None


def _resident_mb() -> float:
    return psutil.Process().memory_info().rss / (1 << 20)


def _facts_without_harbor(
    link: TrialLink, finish: FinishReason, error: BaseException | None
) -> TrialFacts:
    return TrialFacts(
        finish=finish,
        turns=link.notes.turns,
        verdict=None,
        exception_type=type(error).__name__ if error is not None else None,
        exception_message=str(error) if error is not None else None,
        failed_phase=link.stage if error is not None else None,
        last_parse_error=link.notes.last_parse_error,
        human_touched=link.touched,
        human_wrote=link.written,
        seconds=link.watch.seconds(),
    )


class LogFormatter(logging.Formatter):
    """Makes short records in which a terminal obeys nothing, whatever an agent has put into one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) > _RECORD_CHARS:
            half = _RECORD_CHARS // 2
            text = f"{text[:half]}\n[...]\n{text[-half:]}"
        return "\n".join(visible_lines(text))


async def serve(argv: Sequence[str], run_trial: RunTrial) -> None:
    """Run a worker on the channel that the command line names."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < min(hard, _OPEN_FILES):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _OPEN_FILES), hard))
    channel: Channel[FromWorker, ToWorker] = await Channel.over(parent_socket(argv))
    work = asyncio.create_task(Worker(channel, int(argv[2]), run_trial).run())
    loop = asyncio.get_running_loop()

    def terminate() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # a second one must not interrupt the clean-up
        work.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        await work
    except asyncio.CancelledError:
        _log.info("terminated")
    finally:
        await channel.close()


def main(argv: Sequence[str]) -> None:
    # Whatever imports litellm: it would fetch its price list from the network.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(LogFormatter())
        handler.setLevel(logging.INFO)  # Harbor sets its own logger to DEBUG
    with litellm_deferred():
        from tbtui.rollout import seam
        from tbtui.rollout.linked_agent import AgentHost
        from tbtui.rollout.trial import run_trial

    seam.check()
    # One for all trials of this process, once the first of them needs it.
    host = functools.cache(AgentHost)
    asyncio.run(
        serve_and_leave(argv, functools.partial(run_trial, host=host)),
        loop_factory=AwakeLoop,
    )


async def serve_and_leave(argv: Sequence[str], run_trial: RunTrial) -> None:
    """`serve`, and then end the process."""
    await serve(argv, run_trial)
    logging.shutdown()
    # Nothing is left to clean up. Taking the modules apart would only take time, and ending the
    # loop would wait for ever for trials that were left behind.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv)
