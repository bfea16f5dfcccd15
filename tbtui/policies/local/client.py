"""The embedded policy as engines see it.

The model computes in a child process. Requests to sample that come close together are sent as
one batch; while a batch is being computed the next one gathers by itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tbtui.policies.base import (
    Activity,
    Ended,
    PolicyError,
    PolicyInfo,
    PolicyStatus,
    Sample,
    SampleRequest,
)
from tbtui.policies.local.renderer import LocalRenderer, check_installed_harbor
from tbtui.policies.local.sampling import Order, Result, SampleBatch
from tbtui.policies.local.tokenizer import SHIPPED, TOKENIZER, LocalTokenizer
from tbtui.policies.policy_process import (
    PolicyProcess,
    Publish,
    PublishedWeights,
    TrainedInProcess,
    TrainingOrder,
)
from tbtui.policies.work import fitted

_MODULE = "tbtui.policies.local.process"


Asked = tuple[SampleRequest, asyncio.Future[Sample]]
LocalProcess = PolicyProcess[Order, Result, PolicyInfo]


class LocalPolicy(TrainedInProcess[LocalRenderer]):
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
            checkpoint: where a new training starts from; the shipped weights when None. Its
                weights are taken, and are the reference; `load` also takes the optimiser, the
                version and the reference, to go on with the training that was saved.
            model_name: what to call the model.
            threads: threads of a training step; two, or one on a single core, when None.
            linger: seconds that the first request of an idle policy waits for company.
            max_rows: most requests in one batch.
            log: where the process's output goes.
        """
        super().__init__()
        self._checkpoint = checkpoint or SHIPPED
        self._model_name = model_name
        self._threads = threads or min(2, os.cpu_count() or 1)
        self._linger = linger
        self._max_rows = max_rows
        self._log = log
        self._process: LocalProcess | None = None
        self._batcher: asyncio.Task[None] | None = None
        self._waiting: deque[Asked] = deque()
        self._unanswered: set[asyncio.Future[Sample]] = set()
        self._wake = asyncio.Event()
        self._running = 0

    async def start(self, resume: Path | None = None) -> None:
        """Raises `PolicyError` when Harbor's texts have changed, when the checkpoint can't be used
        or when the process doesn't come up."""
        tokenizer = LocalTokenizer(TOKENIZER)
        check_installed_harbor(max(tokenizer.fixed_texts, key=len))
        arguments = (str(self._checkpoint), str(TOKENIZER), str(self._threads))
        self._process, info = await LocalProcess.start(_MODULE, arguments, self._log)
        self._info = dataclasses.replace(
            info, model_name=self._model_name, tokenizer=tokenizer.digest
        )
        self._renderer = LocalRenderer(tokenizer)
        self._batcher = asyncio.create_task(self._send_batches(self._process))

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends."""
        asked = fitted(request, self.info.context_limit)
        if self._batcher is None:
            raise PolicyError("the policy has been closed")
        answer: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        started = time.monotonic()
        self._unanswered.add(answer)
        self._waiting.append((asked, answer))
        self._wake.set()
        try:
            drawn = await answer
        finally:
            self._unanswered.discard(answer)
        self._work.answered(drawn, time.monotonic() - started)
        return drawn

    async def publish(self) -> int:
        published = await self._call(Publish())
        assert isinstance(published, PublishedWeights)
        return published.version

    def status(self) -> PolicyStatus:
        return self._work.status(
            in_flight=len(self._unanswered),
            running=self._running,
            pid=self._process.pid if self._process is not None else None,
        )

    async def close(self, ended: Ended = "success") -> None:
        """End the process; what is still in flight fails with `PolicyError`."""
        if self._batcher is not None:
            self._batcher.cancel()
            await asyncio.gather(self._batcher, return_exceptions=True)
            self._batcher = None
        for answer in self._unanswered:
            if not answer.done():
                answer.set_exception(PolicyError("the policy has been closed"))
        self._waiting.clear()
        if self._process is not None:
            await self._process.close()
            self._process = None

    async def _send_batches(self, process: LocalProcess) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._linger)
            while self._waiting:
                count = min(self._max_rows, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                # The caller may have been cancelled meanwhile.
                batch = [asked for asked in batch if not asked[1].done()]
                if batch:
                    await self._send(process, batch)
            self._wake.clear()

    async def _send(self, process: LocalProcess, batch: Sequence[Asked]) -> None:
        self._running = len(batch)
        try:
            samples = await process.call(SampleBatch(tuple(request for request, _ in batch)))
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

    async def _train(self, activity: Activity, order: TrainingOrder) -> Result:
        with self._work.beside_sampling(activity):
            return await self._call(order)

    async def _call(self, order: Order) -> Result:
        if self._process is None:
            raise PolicyError("the policy is not running")
        return await self._process.call(order)
