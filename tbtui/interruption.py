"""Being told to end before there is an event loop to be told on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a program."""

TOO_EARLY = "interrupted before the run had begun"


class Interrupted(BaseException):
    """A person or a program wants the end. No `Exception`: nothing takes it for a mere failure."""


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """What ends a program raises `Interrupted` within, unless somebody else sees to signals then.

    What is yielded raises it once more: in the middle of an import Python may have lost it.
    """
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        raise Interrupted

    def heed() -> None:
        if came:
            raise Interrupted

    # Who starts it with nohup wants it to ignore that signal.
    heeded = [n for n in SIGNALS if (n, signal.getsignal(n)) != (signal.SIGHUP, signal.SIG_IGN)]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield heed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
