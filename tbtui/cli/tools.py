"""Commands that help with runs: `tbtui guide`, `settings`, `doctor` and `whatif`."""

from __future__ import annotations

from typing import Annotated

import typer

from tbtui.cli.common import Json, Run
from tbtui.command_line import refuse
from tbtui.invocation import to_type


def settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="A setting's name, or a part of it; default: all."
        ),
    ] = None,
) -> None:
    """Print settings with their default, unit, meaning and reason.

    Without NAME, and where the output is no terminal: all as Markdown.
    """
    import shutil

    from tbtui.commands.settings import print_settings

    print_settings(names or [], shutil.get_terminal_size().columns)


def guide(
    page: Annotated[
        str, typer.Argument(metavar="[PAGE]", help="Such as steering; default: the contents.")
    ] = "index",
) -> None:
    """Read the guide. Where the output is no terminal, print the page's Markdown.

    Exit status: 0 read, 2 there is no such page.
    """
    from tbtui.resources import guide_page
    from tbtui.terminal import on_terminal

    try:
        file = guide_page(page)
    except FileNotFoundError as error:
        refuse(error)
    if not on_terminal():
        typer.echo(file.read_text("utf-8"), nl=False)
        return
    from tbtui.paths import config_dir, state_dir
    from tbtui.ui.base_app import GuideApp
    from tbtui.ui.user import User

    GuideApp(page, user=User.load(config_dir(), state_dir())).run()


def doctor(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[model NAME [SETTING=VALUE]...]",
            help="Whether a Hugging Face model, by hub name or directory, fits this machine;"
            " default: the machine itself.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what this machine can and can't do, and what to do about it.

    Exit status: 0 it works, 1 something is missing or a model doesn't fit, 2 bad input.
    """
    if not what:
        if as_json:
            refuse(f"--json is for: {to_type('doctor', 'model', 'NAME')}")
        from tbtui.commands.doctor import print_report

        raise typer.Exit(print_report())
    if what[0] != "model" or len(what) < 2:
        known = to_type("doctor", "model", "NAME")
        refuse(f"write {to_type('doctor')}, or {known} [SETTING=VALUE]...")
    from tbtui.commands.doctor import print_model

    raise typer.Exit(print_model(what[1], what[2:], as_json=as_json))


def whatif(
    run: Run,
    step: Annotated[
        int | None, typer.Option(help="Training step; default: the last one with scored groups.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Another loss_fn.")] = None,
    advantage: Annotated[str | None, typer.Option(help="Another advantage.")] = None,
    normalizer: Annotated[str | None, typer.Option(help="Another loss_normalizer.")] = None,
    clip_low: Annotated[float | None, typer.Option(help="Another clip_low.")] = None,
    clip_high: Annotated[float | None, typer.Option(help="Another clip_high.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute a recorded step's advantages and gradient shares under other settings."""
    from tbtui.whatif.report import print_whatif

    changes = {
        "loss_fn": loss,
        "advantage": advantage,
        "loss_normalizer": normalizer,
        "clip_low": clip_low,
        "clip_high": clip_high,
    }
    print_whatif(run, step, changes, as_json)
