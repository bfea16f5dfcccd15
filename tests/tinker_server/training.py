"""One training client's model: requests carried out one after the other, by sequence number."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from tbtui.policies.base import OptimSettings
from tbtui.policies.local.client import LocalPolicy
from tests.tinker_server.errors import HttpError, WorkFailed
from tests.tinker_server.faults import Faults
from tests.tinker_server.futures import Futures, Promise, Work, carry_out
from tests.tinker_server.losses import loss_batch
from tests.tinker_server.record import Record
from tests.tinker_server.wire import Answer, TrainingRequest, training_answer

_GONE = "the training run is gone"
_BETAS = (0.9, 0.95)
_LARGEST_EPS = 1e-8
"""The embedded policy's; a smaller one is taken for it."""


class TrainingRun:
    """The embedded policy behind one training client."""

    def __init__(
        self,
        run_id: str,
        base_model: str,
        futures: Futures,
        faults: Faults,
        record: Record,
    ) -> None:
        self.run_id = run_id
        self.base_model = base_model
        self._futures = futures
        self._faults = faults
        self._record = record
        self._policy: LocalPolicy | None = None
        self._waiting: dict[int, tuple[Promise, Work] | None] = {}
        """By number; None: passed over."""
        self._next = 0
        self._arrived = asyncio.Event()
        self._worker = asyncio.create_task(self._work())

    @property
    def policy(self) -> LocalPolicy:
        if self._policy is None:
            raise WorkFailed("the model could not be created", "server")
        return self._policy

    @property
    def context_limit(self) -> int:
        return self.policy.info.context_limit

    def known(self, seq_id: int) -> Promise | None:
        """What was promised for this number before."""
        return self._futures.find(self._request_id(seq_id))

    def submit(self, seq_id: int, kind: str, work: Work, **extra: object) -> Promise:
        """Have `work` done in its turn."""
        promise = self._futures.add(self._request_id(seq_id), kind, **extra)
        self._waiting[seq_id] = (promise, work)
        self._arrived.set()
        return promise

    def pass_over(self, seq_id: int) -> None:
        """Nobody will come with this number any more: it was refused."""
        if seq_id >= self._next:
            self._waiting.setdefault(seq_id, None)
            self._arrived.set()

    async def start(self, checkpoint: Path | None, resume: Path | None) -> None:
        """A new training from `checkpoint`'s weights, or (with `resume`) one that goes on."""
        policy = LocalPolicy(checkpoint)
        await policy.start()
        try:
            if resume is not None:
                await policy.load(resume)
        except BaseException:
            await policy.close()
            raise
        self._policy = policy

    async def gradient(self, request: TrainingRequest) -> bytes:
        batch = loss_batch(request.loss_fn, request.config, request.data, self.context_limit)
        if request.forward_only:
            logprobs = await self.policy.score(batch.whole, "trained")
            loss = batch.loss(logprobs)
        else:
            result = await self.policy.accumulate(batch.trained, batch.settings)
            logprobs, loss = result.logprobs, result.loss
            if batch.trained is not batch.whole:
                logprobs = await self.policy.score(batch.whole, "trained")
        return training_answer(logprobs, {"loss:sum": loss})

    async def step(self, settings: OptimSettings) -> Answer:
        result = await self.policy.apply(settings)
        self._record.step(self.run_id)
        assert result.grad_norm is not None
        return {"metrics": {"unclipped_grad_l2:mean": result.grad_norm}}

    async def close(self) -> None:
        """End it; what was waiting fails."""
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        for entry in self._waiting.values():
            if entry is not None:
                entry[0].fail(WorkFailed(_GONE, "user"))
        self._waiting.clear()
        if self._policy is not None:
            await self._policy.close()

    def _request_id(self, number: int) -> str:
        return f"{self.run_id}:{number}"

    async def _work(self) -> None:
        while True:
            self._arrived.clear()
            while self._next in self._waiting:
                if (entry := self._waiting[self._next]) is not None:
                    await self._do(*entry)
                del self._waiting[self._next]
                self._next += 1
            await self._arrived.wait()

    async def _do(self, promise: Promise, work: Work) -> None:
        try:
            with contextlib.suppress(Exception):  # who retrieves it is told
                await carry_out(promise, work, self._faults)
        except asyncio.CancelledError:
            promise.fail(WorkFailed(_GONE, "user"))
            raise


def optim_settings(params: dict[str, float]) -> OptimSettings:
    """AdamParams as the embedded policy's settings.

    Raises:
        HttpError: 422 for what the embedded policy's AdamW can't do.
    """
    if (params.get("beta1", _BETAS[0]), params.get("beta2", _BETAS[1])) != _BETAS:
        raise HttpError(422, f"beta1, beta2 must be {_BETAS}")
    if params.get("eps", 0.0) > _LARGEST_EPS:
        raise HttpError(422, f"eps must be at most {_LARGEST_EPS}")
    return OptimSettings(
        learning_rate=params["learning_rate"],
        grad_clip=params.get("grad_clip_norm", 0.0),
        weight_decay=params.get("weight_decay", 0.0),
    )
