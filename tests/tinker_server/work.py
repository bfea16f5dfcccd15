"""Carrying out one piece of work behind a future, with what a test wants to go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tbtui.policies.base import PolicyError
from tests.tinker_server.errors import HttpError, WorkFailed
from tests.tinker_server.faults import Faults
from tests.tinker_server.futures import Promise
from tests.tinker_server.wire import Answer

Work = Callable[[], Awaitable[Answer]]
_PAUSE_CHECK = 0.02


async def carry_out(promise: Promise, work: Work, faults: Faults) -> None:
    """Fulfil `promise`. Waits while its kind is paused."""
    while faults.paused(promise.kind) is not None:  # noqa: ASYNC110 - set from other threads
        await asyncio.sleep(_PAUSE_CHECK)
    fault = faults.take(("fail",), {promise.kind}, "")
    try:
        if fault is not None and not fault.carried_out:
            raise WorkFailed(fault.detail or "injected failure", fault.category)
        answer = await work()
        if fault is not None:
            raise WorkFailed(fault.detail or "injected failure", fault.category)
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
