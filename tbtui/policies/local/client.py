"""The embedded policy as engines see it.

The model computes in a child process. Requests to sample that come close together are sent as
one batch; while a batch is being computed the next one gathers by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal

from tbtui.ipc import Channel, ChannelClosedError, spawn, wait_for_exit
from tbtui.policies.base import (
    ContextOverflowError,
    Datum,
    PolicyError,
    PolicyInfo,
    PolicyStatus,
    Sample,
    SampleRequest,
    TrainResult,
    TrainSettings,
)
from tbtui.policies.local.messages import (
    Call,
    Done,
    Failed,
    FromProcess,
    Load,
    Order,
    Publish,
    Ready,
    Result,
    SampleBatch,
    Save,
    ToProcess,
    TrainStep,
)
from tbtui.policies.local.renderer import LocalRenderer
from tbtui.policies.local.shipped import SHIPPED, TOKENIZER
from tbtui.policies.local.terminus import check_installed_harbor
from tbtui.policies.local.tokenizer import LocalTokenizer

_MODULE = "tbtui.policies.local.process"
_EXIT_SECONDS = 10.0
_LATENCIES = 256

Activity = Literal["idle", "sampling", "training", "loading", "saving"]


class LocalPolicy:
    """Implements `tbtui.policies.base.Policy`."""

    def __init__(
        self,
        checkpoint: Path | None = None,
        *,
        model_name: str = "starter",
        threads: int | None = None,
        linger: float = 0.012,
        max_rows: int = 64,
        log: IO[bytes] | None = None,
    ) -> None:
        """
        Args:
            checkpoint: directory to start from; the shipped one when None.
            model_name: what to call the model.
            threads: threads of a training step; two, or one on a single core, when None.
            linger: seconds that the first request of an idle policy waits for company.
            max_rows: most requests in one batch.
            log: where the process's standard error goes.
        """
        self._checkpoint = checkpoint or SHIPPED
        self._model_name = model_name
        self._threads = threads or min(2, os.cpu_count() or 1)
        self._linger = linger
        self._max_rows = max_rows
        self._log = log
        self._info: PolicyInfo | None = None
        self._renderer: LocalRenderer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[ToProcess, FromProcess] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: dict[int, asyncio.Future[Result]] = {}
        self._number = 0
        self._failure: str | None = "the policy has not been started"
        self._waiting: deque[tuple[SampleRequest, asyncio.Future[Sample]]] = deque()
        self._wake = asyncio.Event()
        self._in_flight = 0
        self._running = 0
        self._completed = 0
        self._sampled_tokens = 0
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self._exclusive: Activity | None = None

    @property
    def info(self) -> PolicyInfo:
        if self._info is None:
            raise PolicyError("the policy has not been started")
        return self._info

    @property
    def renderer(self) -> LocalRenderer:
        if self._renderer is None:
            raise PolicyError("the policy has not been started")
        return self._renderer

    async def start(self) -> None:
        """Raises `PolicyError` when Harbor's texts have changed, when the checkpoint can't be used
        or when the process doesn't come up."""
        tokenizer = LocalTokenizer(TOKENIZER)
        check_installed_harbor(max(tokenizer.fixed_texts, key=len))
        self._renderer = LocalRenderer(tokenizer)
        arguments = (str(self._checkpoint), str(TOKENIZER), str(self._threads))
        try:
            self._process, sock = spawn(_MODULE, arguments, log=self._log)
        except OSError as error:
            raise PolicyError(f"can't start the policy's process: {error.strerror}") from error
        self._channel = await Channel.over(sock)
        started: asyncio.Future[PolicyInfo] = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._receive(self._channel, started))]
        try:
            info = await started
        except BaseException:
            await self.close()
            raise
        self._info = PolicyInfo(
            name=info.name,
            model_name=self._model_name,
            parameters=info.parameters,
            context_limit=info.context_limit,
            losses=info.losses,
        )
        self._failure = None
        self._tasks.append(asyncio.create_task(self._batch()))

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends."""
        limit = self.info.context_limit
        room = limit - len(request.prompt_ids)
        if room < 1:
            raise ContextOverflowError(
                f"the prompt has {len(request.prompt_ids)} tokens; the context limit is {limit}"
            )
        if not request.prompt_ids or request.max_tokens < 1 or request.temperature < 0:
            raise PolicyError(
                "a sampling request needs a prompt, max_tokens >= 1 and temperature >= 0"
            )
        if self._failure is not None:
            raise PolicyError(self._failure)
        fitting = SampleRequest(
            prompt_ids=request.prompt_ids,
            max_tokens=min(room, request.max_tokens),
            temperature=request.temperature,
            seed=request.seed,
        )
        answer: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        started = time.monotonic()
        self._in_flight += 1
        self._waiting.append((fitting, answer))
        self._wake.set()
        try:
            drawn = await answer
        finally:
            self._in_flight -= 1
        self._completed += 1
        self._sampled_tokens += len(drawn.completion_ids)
        self._latencies.append(time.monotonic() - started)
        return drawn

    async def train_step(self, data: Sequence[Datum], settings: TrainSettings) -> TrainResult:
        result = await self._call_alone("training", TrainStep(tuple(data), settings))
        assert isinstance(result, TrainResult)
        return result

    async def publish(self) -> int:
        result = await self._call(Publish())
        assert isinstance(result, int)
        return result

    async def save(self, directory: Path) -> None:
        await self._call_alone("saving", Save(directory))

    async def load(self, directory: Path) -> None:
        """Both the trained and the published weights become those of `directory`."""
        await self._call_alone("loading", Load(directory))

    def status(self) -> PolicyStatus:
        activity = self._exclusive or ("sampling" if self._running else "idle")
        return PolicyStatus(
            in_flight=self._in_flight,
            running=self._running,
            completed=self._completed,
            sampled_tokens=self._sampled_tokens,
            latencies=tuple(self._latencies),
            activity=activity,
            pid=self._process.pid if self._process is not None else None,
        )

    async def close(self) -> None:
        """End the process; what is still in flight fails with `PolicyError`."""
        self._fail("the policy has been closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if self._process is not None and await wait_for_exit(self._process, _EXIT_SECONDS) is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _batch(self) -> None:
        """Sends what is waiting, one batch after another."""
        while True:
            await self._wake.wait()
            if self._linger:
                await asyncio.sleep(self._linger)
            while self._waiting:
                count = min(self._max_rows, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                # Whoever asked may have been cancelled meanwhile.
                batch = [(request, answer) for request, answer in batch if not answer.done()]
                if batch:
                    await self._send_batch(batch)
            self._wake.clear()

    async def _send_batch(self, batch: list[tuple[SampleRequest, asyncio.Future[Sample]]]) -> None:
        self._running = len(batch)
        try:
            samples = await self._call(SampleBatch(tuple(request for request, _ in batch)))
        except PolicyError as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(type(error)(str(error)))
        else:
            assert isinstance(samples, tuple)
            for (_, answer), drawn in zip(batch, samples, strict=True):
                if not answer.done():
                    answer.set_result(drawn)
        finally:
            self._running = 0

    async def _call_alone(self, activity: Activity, order: Order) -> Result:
        self._exclusive = activity
        try:
            return await self._call(order)
        finally:
            self._exclusive = None

    async def _call(self, order: Order) -> Result:
        if self._failure is not None or self._channel is None:
            raise PolicyError(self._failure or "the policy is closed")
        self._number += 1
        number = self._number
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        try:
            await self._channel.send(Call(number, order))
            return await future
        except ChannelClosedError as error:
            raise PolicyError(self._failure or "the policy's process is gone") from error
        finally:
            self._calls.pop(number, None)

    async def _receive(
        self,
        channel: Channel[ToProcess, FromProcess],
        started: asyncio.Future[PolicyInfo],
    ) -> None:
        async for message in channel:
            match message:
                case Ready(info):
                    started.set_result(info)
                case Done(number, result):
                    if number in self._calls:
                        self._calls[number].set_result(result)
                case Failed(None, reason):
                    started.set_exception(PolicyError(reason))
                case Failed(number, reason):
                    if number in self._calls:
                        self._calls[number].set_exception(PolicyError(reason))
        assert self._process is not None
        reason = _ending(await wait_for_exit(self._process, _EXIT_SECONDS))
        if not started.done():
            started.set_exception(PolicyError(reason))
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        """From now on everything fails with `reason`, also what is in flight."""
        self._failure = reason
        for future in self._calls.values():
            if not future.done():
                future.set_exception(PolicyError(reason))
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(PolicyError(reason))


def _ending(status: int | None) -> str:
    if status is None:
        return "the policy's process closed its channel and hangs"
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the policy's process was killed by {name}{hint}"
    return f"the policy's process ended with exit status {status}; see the run's log"
