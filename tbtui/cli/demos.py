"""`tbtui demos`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tbtui.cli.common import Json, Run
from tbtui.command_line import noun

demos_app = noun("Review what people typed in a run's trials: demonstrations to train on.")

Ids = Annotated[
    list[str], typer.Argument(metavar="DEMO...", help="Demonstrations: ids, or how one begins.")
]
Id = Annotated[
    str, typer.Argument(metavar="DEMO", help="A demonstration: its id, or how it begins.")
]


@demos_app.command("list", short_help="List a run's demonstrations.")
def list_demos(run: Run, as_json: Json = False) -> None:
    """List a run's demonstrations and what was decided on each."""
    from tbtui.commands.demos import print_demonstrations

    print_demonstrations(run, as_json=as_json)


@demos_app.command("show", short_help="Show what was asked, and what was typed.")
def show(run: Run, demo: Id, as_json: Json = False) -> None:
    """Show what the agent was asked, and the answer that would be trained on."""
    from tbtui.commands.demos import show_demonstration

    show_demonstration(run, demo, as_json=as_json)


@demos_app.command("accept", short_help="Let demonstrations be trained on.")
def accept(
    run: Run,
    demos: Ids,
    answer: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="Take this answer: as in show --json."),
    ] = None,
) -> None:
    """Let demonstrations be trained on, from the next step of a run with demos=train on."""
    from tbtui.commands.demos import decide

    decide(run, demos, "accepted", answer)


@demos_app.command("drop", short_help="Keep demonstrations out of training.")
def drop(run: Run, demos: Ids) -> None:
    """Keep demonstrations out of training; they stay on disk."""
    from tbtui.commands.demos import decide

    decide(run, demos, "dropped")


@demos_app.command("edit", short_help="Edit an answer in your editor.")
def edit(run: Run, demo: Id) -> None:
    """Edit an answer in your editor (EDITOR): analysis, plan, commands. What was decided stays."""
    from tbtui.commands.demos import edit_demonstration

    edit_demonstration(run, demo)


@demos_app.command("export", short_help="Write accepted ones as chat messages.")
def export(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="JSON lines; default: printed.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Those too that nobody has accepted.")
    ] = False,
) -> None:
    """Write demonstrations as chat messages, an object a line: what fine-tuning programs take."""
    from tbtui.commands.demos import export_demonstrations

    export_demonstrations(run, file, everything=everything)
