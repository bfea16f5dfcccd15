"""Is anybody at the other end of the terminal?"""

from __future__ import annotations

import asyncio
import select

_LOOK_SEC = 1.0


async def until_gone(descriptor: int) -> None:
    """Returns once the terminal, or the pipe in its place, has been closed at its other end.

    The kernel tells that by signal to those alone whose controlling terminal it was. Others, such
    as an app that was started with `setsid` or by a supervisor, would read its end for ever, as
    fast as they can.
    """
    poll = select.poll()
    poll.register(descriptor, 0)  # what is asked for is told unasked: closed, or broken
    while not poll.poll(0):  # noqa: ASYNC110 - nobody on this side can set an event
        await asyncio.sleep(_LOOK_SEC)
