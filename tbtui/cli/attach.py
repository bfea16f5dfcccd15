"""`tbtui attach`."""

from __future__ import annotations

from typing import Annotated

import typer

from tbtui.cli.common import FramesPerSecond, frames_of


def attach(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A live run's directory or name, HOST:RUN, or ssh://HOST/RUN; default: the only"
            " live one here.",
        ),
    ] = None,
    look: Annotated[
        bool, typer.Option("--look", help="Only look; don't ask for the controls.")
    ] = False,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="Take the controls, and keep scripts out too.")
    ] = False,
    name: Annotated[str, typer.Option("--name", help="Who looks; default: the user.")] = "",
    command: Annotated[
        str, typer.Option("--command", help="What starts tbtui on another machine.")
    ] = "tbtui",
    fps: FramesPerSecond = None,
) -> None:
    """Join a live run of another process: see it, steer it, and leave it running.

    Several people may look; one has the controls. Whoever comes first gets them; C takes them.

    On another machine the app runs there, through ssh.
    """
    from tbtui.commands.attach import attach as attach_to

    frames = frames_of(fps)
    raise typer.Exit(
        attach_to(run, look=look, exclusive=exclusive, name=name, command=command, fps=frames)
    )
