"""What all commands have in common: how one ends, and how it refuses what it was given.

Nothing heavier than Typer is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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
