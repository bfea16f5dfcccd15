"""`tbtui serve`."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="A run's directory, or its name; default: the newest."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; it speaks plain HTTP.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")
    ] = 8000,
    anyone: Annotated[
        bool,
        typer.Option("--anyone", help="Ask for no token: whoever reaches it can read the run."),
    ] = False,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where browsers find it, behind a proxy."),
    ] = None,
) -> None:
    """Show a run in browsers, live or past: all its screens, and nothing that steers it.

    Open the address that it prints: it holds a token, a new one each time unless the environment
    has one (TBTUI_SERVE_TOKEN). From another machine: ssh -L 8000:localhost:8000. Each tab has a
    process of its own, at most 8. Needs the extra serve.

    Exit status: 0 ended by ctrl-c, 2 bad input.
    """
    from tbtui.serve.command import serve as serve_run

    raise typer.Exit(serve_run(run, host, port, anyone=anyone, public_url=public_url))
