"""Runs blocking calls that neither a cancelled caller nor the process's end has to wait for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable


async def in_daemon_thread[T](work: Callable[[], T], name: str) -> T:
    """As `asyncio.to_thread`, but neither a caller that is cancelled nor the end of the process
    waits for `work`: what connects to a dead server may block for minutes."""
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def main() -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            result.set_exception(error)
        else:
            result.set_result(value)

    threading.Thread(target=main, name=name, daemon=True).start()
    return await asyncio.wrap_future(result)
