"""Options that commands share, and how to show a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tbtui.command_line import refuse
from tbtui.terminal import on_terminal

if TYPE_CHECKING:
    from tbtui.launch import View

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


def frames_of(fps: str | None) -> int | None:
    """Frames a second that `--fps` asks for, if it was given."""
    from tbtui.ui.user import frames_per_second

    try:
        return None if fps is None else frames_per_second(fps)
    except ValueError as error:
        refuse(f"--{error}")


def view_of(*, no_ui: bool, as_json: bool) -> View:
    """How to show a run: as was asked, and in lines where there is no terminal."""
    return "json" if as_json else "lines" if no_ui or not on_terminal() else "app"
