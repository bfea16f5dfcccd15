"""`sampler=transformers` as the policy sees it: a process of its own draws completions."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from pathlib import Path
from typing import IO

from tbtui.ipc import Channel, ChannelClosedError, exit_words, spawn, wait_for_exit
from tbtui.policies.base import PolicyError, PolicyLostError, Sample, SampleRequest
from tbtui.policies.torch.sampler_messages import (
    Begin,
    Cancel,
    Done,
    Draw,
    Failed,
    FromProcess,
    Publish,
    Ready,
    Running,
    ToProcess,
)
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.work import fitted
from tbtui.server_status import ServerStatus

_MODULE = "tbtui.policies.torch.sampler_process"
_EXIT_SECONDS = 5.0
_ENVIRONMENT = {
    # Nothing reads a progress bar in a log.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class TransformersSampler:
    """Implements `SamplingEngine`. Once its process has failed, every call fails with the same
    reason."""

    notes = ("sampler=transformers: tbtui's own continuous batching on transformers",)
    server: ServerStatus | None = None

    def __init__(self, settings: SamplerSettings, log: IO[bytes] | None = None) -> None:
        """`log`: where the process's output goes."""
        self._settings = settings
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[ToProcess, FromProcess] | None = None
        self._receiver: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._asked: dict[int, asyncio.Future[Sample | None]] = {}
        self._number = 0
        self._running = 0
        self._failure: PolicyError | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def running(self) -> int:
        return self._running

    async def start(self) -> None:
        try:
            self._process, sock = spawn(_MODULE, log=self._log, env=_ENVIRONMENT)
        except OSError as error:
            raise PolicyError(f"can't start the sampler's process: {error.strerror}") from error
        self._channel = await Channel.over(sock)
        self._ready = asyncio.get_running_loop().create_future()
        self._receiver = asyncio.create_task(self._receive(self._process, self._channel))
        try:
            with contextlib.suppress(ChannelClosedError):
                await self._channel.send(Begin(self._settings))
            await self._ready
        except BaseException:
            await self.close()
            raise

    async def sample(self, request: SampleRequest) -> Sample:
        asked = fitted(request, self._settings.context_limit)
        number = self._next()
        try:
            drawn = await self._ask(number, Draw(number, asked))
        except asyncio.CancelledError:
            self._post(Cancel(number))
            raise
        assert drawn is not None
        return drawn

    async def publish(self, version: int, weights: Path) -> None:
        number = self._next()
        await self._ask(number, Publish(number, version, weights))

    async def close(self) -> None:
        self._fail(PolicyError("the policy has been closed"))
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None and (
            await wait_for_exit(self._process, _EXIT_SECONDS) is None
        ):
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._process = None

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _ask(self, number: int, message: Draw | Publish) -> Sample | None:
        if self._failure is not None:
            raise self._failure
        if self._channel is None:
            raise PolicyError("the sampler has not been started")
        future: asyncio.Future[Sample | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            await self._channel.send(message)
            return await future
        except ChannelClosedError as error:
            raise self._failure or PolicyLostError("the sampler's process is gone") from error
        finally:
            self._asked.pop(number, None)

    def _post(self, message: ToProcess) -> None:
        if self._channel is not None and self._failure is None:
            with contextlib.suppress(ChannelClosedError):
                self._channel.post(message)

    async def _receive(
        self, process: subprocess.Popen[bytes], channel: Channel[ToProcess, FromProcess]
    ) -> None:
        ready = self._ready
        assert ready is not None
        async for message in channel:
            match message:
                case Ready():
                    ready.set_result(None)
                case Running(count):
                    self._running = count
                case Failed(None, reason):
                    ready.set_exception(PolicyError(reason))
                case Done(number, result):
                    if number in self._asked and not self._asked[number].done():
                        self._asked[number].set_result(result)
                case Failed(number, reason):
                    if number in self._asked and not self._asked[number].done():
                        self._asked[number].set_exception(PolicyError(reason))
        reason = _ending(await wait_for_exit(process, _EXIT_SECONDS))
        # One that has never been ready would fail again.
        self._fail(PolicyLostError(reason) if ready.done() else PolicyError(reason))

    def _fail(self, failure: PolicyError) -> None:
        self._failure = self._failure or failure
        self._running = 0
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(failure)
        for future in self._asked.values():
            if not future.done():
                future.set_exception(self._failure)


def _ending(status: int | None) -> str:
    if status is None:
        return "the sampler's process closed its channel and hangs"
    if status == -signal.SIGKILL:
        return f"the sampler's process was {exit_words(status)} (out of memory?)"
    was = "was " if status < 0 else ""
    return f"the sampler's process {was}{exit_words(status)}; see the run's log"
