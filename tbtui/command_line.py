"""What all commands have in common: how they end, are interrupted, and refuse bad input.

Nothing heavier than Typer is imported.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType
from typing import Any, NoReturn, override

import typer
from typer.core import TyperGroup

from tbtui.errors import UserError
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
"""How a run ended -> exit status."""


_UsageError: Any = typer.BadParameter.__base__
"""A command line that can't be read. Typer has it from Click, or as a copy, and exports it nowhere
else."""


class CommandGroup(TyperGroup):
    """Commands that end with one line and a status where a person gave bad input, or interrupts."""

    @override
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)
        except _UsageError as error:
            refuse(_in_one_line(error))

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            refuse(_in_one_line(error))
        except UserError as error:
            refuse(error)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


def _in_one_line(error: Any) -> str:
    """What is wrong, then what there is: the nearest names, the commands, or how it is used."""
    message = error.format_message().strip()
    if error.ctx is None or "\n" in message:
        # A group without a command has its help for a message.
        raise error
    if message.endswith(("?", ")")):
        return f"{message[0].lower()}{message[1:]}"
    message = f"{message[0].lower()}{message[1:].rstrip('.')}"
    if isinstance(error.ctx.command, TyperGroup) and "command" in message:
        names = ", ".join(error.ctx.command.list_commands(error.ctx))
        return f"{message}; {error.ctx.command_path} has {names}"
    usage = " ".join(error.ctx.get_usage().split())
    return f"{message}; {usage[0].lower()}{usage[1:]}"


def noun(help: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=help, cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


def say(text: object) -> None:
    """Write one line on the error output: all error messages come through here.

    Messages quote what files, servers and programs say: nothing of it reaches a terminal as a
    command.
    """
    typer.echo(f"tbtui: {visible(str(text).strip())}", err=True)


def refuse(error: object) -> NoReturn:
    """Print what is wrong with the input, and exit with status 2."""
    say(error)
    raise typer.Exit(EXIT_BAD_INPUT)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program."""

TOO_EARLY = "interrupted before the run had begun"


class Interrupted(BaseException):
    """A signal asks the program to end. Not an `Exception`: it is no failure."""


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise `Interrupted` on a signal that ends programs, unless another handler is set meanwhile.

    Yields a function that raises it once more: in the middle of an import Python may lose it.
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
