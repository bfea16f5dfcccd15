"""What all commands have in common: how one ends, and how it refuses what it was given.

Nothing heavier than Typer is imported.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType
from typing import NoReturn

import typer

from tbtui.terminal import visible

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

EXIT: Mapping[str, int] = MappingProxyType(
    {
        "finished": 0,
        "failed": EXIT_FAILED,
        "refused": EXIT_BAD_INPUT,
        "interrupted": EXIT_INTERRUPTED,
    }
)
"""Of a run, by how it ended."""


def noun(help: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None)


def say(text: object) -> None:
    """One line on the error output: what goes wrong is said here alone.

    Messages quote what files, servers and programs say: nothing of it reaches a terminal as a
    command.
    """
    typer.echo(f"tbtui: {visible(str(text).strip())}", err=True)


def refuse(error: object) -> NoReturn:
    """Say what is wrong with what was given, and leave with status 2."""
    say(error)
    raise typer.Exit(EXIT_BAD_INPUT)


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

    def raise_if_interrupted() -> None:
        if came:
            raise Interrupted

    # Who starts it with nohup wants it to ignore that signal.
    handled = [n for n in SIGNALS if (n, signal.getsignal(n)) != (signal.SIGHUP, signal.SIG_IGN)]
    before = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield raise_if_interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
