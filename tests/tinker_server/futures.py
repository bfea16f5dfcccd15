"""Requests whose result is retrieved later, by id."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tbtui.policies.base import PolicyError
from tests.tinker_server.errors import HttpError, WorkFailed
from tests.tinker_server.faults import Faults, Pause
from tests.tinker_server.wire import Answer

Work = Callable[[], Awaitable[Answer]]
_PAUSE_CHECK = 0.02
_PAUSED_POLL = 0.2
"""Seconds after which a poll of a paused queue answers that it is paused."""


@dataclass(slots=True)
class Promise:
    """One accepted request. `extra`: what its submission was answered with beside the id."""

    request_id: str
    kind: str
    outcome: asyncio.Future[Answer]
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def submission(self) -> dict[str, object]:
        return {"request_id": self.request_id, **self.extra}

    def succeed(self, answer: Answer) -> None:
        if not self.outcome.done():
            self.outcome.set_result(answer)

    def fail(self, error: WorkFailed) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # nobody may ever ask: that is no mistake of ours


@dataclass(frozen=True, slots=True)
class Pending:
    """Not done yet; ask again."""

    pause: Pause | None


class Futures:
    """All promises of the server's life."""

    def __init__(self, faults: Faults, poll_seconds: float) -> None:
        self._faults = faults
        self._poll_seconds = poll_seconds
        self._promises: dict[str, Promise] = {}

    def find(self, request_id: str) -> Promise | None:
        return self._promises.get(request_id)

    def get(self, request_id: str) -> Promise:
        """Raises `HttpError` 410, which is how the protocol says that a promise is gone."""
        promise = self._promises.get(request_id)
        if promise is None:
            raise HttpError(410, f"request {request_id} is not known (any more)")
        return promise

    def add(self, request_id: str, kind: str, **extra: object) -> Promise:
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        promise = self._promises[request_id] = Promise(request_id, kind, outcome, extra)
        return promise

    async def wait(self, promise: Promise) -> Answer | Pending:
        """Raises `WorkFailed` when the work has failed."""
        ends = time.monotonic() + self._poll_seconds
        while not promise.outcome.done():
            if time.monotonic() >= ends:
                return Pending(self._faults.paused(promise.kind))
            await asyncio.wait([promise.outcome], timeout=_PAUSED_POLL)
            if not promise.outcome.done() and (pause := self._faults.paused(promise.kind)):
                return Pending(pause)
        return promise.outcome.result()


async def carry_out(promise: Promise, work: Work, faults: Faults) -> None:
    """Fulfil `promise`. Waits while its kind is paused."""
    while faults.paused(promise.kind) is not None:  # noqa: ASYNC110 - set from other threads
        await asyncio.sleep(_PAUSE_CHECK)
    fault = faults.take(("fail",), {promise.kind})
    try:
        if fault is not None:
            raise WorkFailed(fault.detail or "injected failure", fault.category)
        answer = await work()
    except WorkFailed as error:
        promise.fail(error)
    except HttpError as error:
        promise.fail(WorkFailed(error.detail, "user"))
    except PolicyError as error:
        promise.fail(WorkFailed(str(error), "user"))
    except Exception as error:
        promise.fail(WorkFailed(repr(error), "server"))
        raise
    else:
        promise.succeed(answer)
