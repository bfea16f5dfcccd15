"""The client's end of the policy's process: start it, call it, notice its death, end it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from pathlib import Path
from typing import IO

from tbtui.ipc import Channel, ChannelClosedError, spawn, wait_for_exit
from tbtui.policies.base import PolicyError, PolicyInfo, PolicyLostError
from tbtui.policies.local.messages import (
    Call,
    Done,
    Failed,
    FromProcess,
    Order,
    Ready,
    Result,
    ToProcess,
)

_MODULE = "tbtui.policies.local.process"
_EXIT_SECONDS = 10.0


class PolicyProcess:
    """A running policy process. Once it has failed, every call fails with the same reason."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel[ToProcess, FromProcess]
    ) -> None:
        self._process = process
        self._channel = channel
        self._calls: dict[int, asyncio.Future[Result]] = {}
        self._number = 0
        self._failure: PolicyError | None = None
        self._ready: asyncio.Future[PolicyInfo] = asyncio.get_running_loop().create_future()
        self._receiver = asyncio.create_task(self._receive())

    @classmethod
    async def start(
        cls, checkpoint: Path, tokenizer: Path, threads: int, log: IO[bytes] | None
    ) -> tuple[PolicyProcess, PolicyInfo]:
        """Raises `PolicyError` when the process can't start or refuses the checkpoint."""
        arguments = (str(checkpoint), str(tokenizer), str(threads))
        try:
            process, sock = spawn(_MODULE, arguments, log=log)
        except OSError as error:
            raise PolicyError(f"can't start the policy's process: {error.strerror}") from error
        running = cls(process, await Channel.over(sock))
        try:
            return running, await running._ready
        except BaseException:
            await running.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, order: Order) -> Result:
        """Have `order` done. Raises `PolicyError` when it fails or the process is gone."""
        if self._failure is not None:
            raise self._failure
        self._number += 1
        number = self._number
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        try:
            await self._channel.send(Call(number, order))
            return await future
        except ChannelClosedError as error:
            raise self._failure or PolicyLostError("the policy's process is gone") from error
        finally:
            self._calls.pop(number, None)

    async def close(self) -> None:
        """End the process; calls in flight fail."""
        self._fail(PolicyError("the policy has been closed"))
        self._receiver.cancel()
        await asyncio.gather(self._receiver, return_exceptions=True)
        await self._channel.close()
        if await wait_for_exit(self._process, _EXIT_SECONDS) is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _receive(self) -> None:
        async for message in self._channel:
            match message:
                case Ready(info):
                    self._ready.set_result(info)
                case Failed(None, reason):
                    self._ready.set_exception(PolicyError(reason))
                case Done(number, result):
                    if number in self._calls and not self._calls[number].done():
                        self._calls[number].set_result(result)
                case Failed(number, reason):
                    if number in self._calls and not self._calls[number].done():
                        self._calls[number].set_exception(PolicyError(reason))
        reason = _ending(await wait_for_exit(self._process, _EXIT_SECONDS))
        # One that has never been ready would fail again.
        self._fail(PolicyLostError(reason) if self._ready.done() else PolicyError(reason))

    def _fail(self, failure: PolicyError) -> None:
        self._failure = self._failure or failure
        if not self._ready.done():
            self._ready.set_exception(failure)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(failure)


def _ending(status: int | None) -> str:
    if status is None:
        return "the policy's process closed its channel and hangs"
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the policy's process was killed by {name}{hint}"
    return f"the policy's process ended with exit status {status}; see the run's log"
