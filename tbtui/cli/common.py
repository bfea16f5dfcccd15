"""What the commands share: options, exit statuses, and how one refuses what it was given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from tbtui.launch import View

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

FramesPerSecond = Annotated[
    str | None,
    typer.Option(
        "--fps",
        metavar="low|normal|N",
        help="Frames a second, at most 10; low for slow links. Default: app.toml's.",
    ),
]
NoUi = Annotated[bool, typer.Option("--no-ui", help="Print lines instead of showing the app.")]
EventsAsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON event a line; implies --no-ui.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, or its name.")]


def noun(help: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None)


def refuse(error: object) -> NoReturn:
    """Say what is wrong with what was given, and leave with status 2."""
    typer.echo(f"tbtui: {error}", err=True)
    raise typer.Exit(EXIT_BAD_INPUT)


def frames_of(fps: str | None) -> int | None:
    """Frames a second that `--fps` asks for, if it was given."""
    from tbtui.ui.settings import frames_per_second

    try:
        return None if fps is None else frames_per_second(fps)
    except ValueError as error:
        refuse(f"--{error}")


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def view_of(*, no_ui: bool, as_json: bool) -> View:
    """How to show a run: as was asked, and in lines where there is no terminal."""
    return "json" if as_json else "lines" if no_ui or not on_terminal() else "app"
