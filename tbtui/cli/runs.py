"""Runs that are there: `tbtui runs`, `compare`, `replay` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tbtui.cli.common import FramesPerSecond, Json, Run, frames_of
from tbtui.command_line import EXIT_FAILED, refuse
from tbtui.errors import UserError
from tbtui.terminal import visible

runs_app = typer.Typer(help="List live and past runs, or search them.", rich_markup_mode=None)

LogsDirectories = Annotated[
    list[Path] | None,
    typer.Option("--logs-dir", help="Directory of runs; may be repeated; default: logs_dir."),
]


@runs_app.callback(invoke_without_command=True)
def list_runs(
    context: typer.Context,
    logs_dir: LogsDirectories = None,
    as_json: Json = False,
) -> None:
    """List live and past runs: when, what, how far, pass rates first and last, how they ended."""
    context.obj = (logs_dir or [], as_json)  # `search` heeds what stands before it, too
    if context.invoked_subcommand is None:
        from tbtui.commands.runs import print_runs

        try:
            print_runs(logs_dir or [], as_json=as_json)
        except UserError as error:
            refuse(error)


@runs_app.command("search", short_help="Find a text in the runs' transcripts.")
def search_runs(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="ASCII letters match in either case.")],
    run: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="A run's directory, or its name; default: all."),
    ] = None,
    logs_dir: LogsDirectories = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Find a text in what models said and typed, terminals showed and verifiers wrote.

    Exit status: 0 found, 1 not there, 2 bad input.
    """
    from tbtui.commands.runs import print_hits

    if not text.strip():
        refuse("search: write what to look for")
    try:
        before, json_before = context.obj
        places = [*before, *(logs_dir or [])]
        found = print_hits(text, run or [], places, as_json=as_json or json_before)
    except UserError as error:
        refuse(error)
    raise typer.Exit(0 if found else EXIT_FAILED)


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A run's directory, or its name.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one's.")],
    as_json: Json = False,
) -> None:
    """Compare two runs: pass rates, the settings that differ, and each task's mean reward."""
    from tbtui.commands.compare import print_comparison

    try:
        print_comparison(first, second, as_json=as_json)
    except UserError as error:
        refuse(error)


def replay(
    run: Run,
    trial: Annotated[
        str | None,
        typer.Argument(metavar="TRIAL", help="Open this trial: its id, or its label (copy-03/2)."),
    ] = None,
    at: Annotated[
        Literal["start", "end"],
        typer.Option(help="Play it from its start, or show how it ended."),
    ] = "start",
    fps: FramesPerSecond = None,
) -> None:
    """Show a recorded run on the screens of a live one, with a clock to play it and to go about in.

    Space plays, [ and ] go by turns, < and > to steps, alarms and broken trials; ? has all keys.
    """
    from tbtui.commands.replay import replay as show_replay

    raise typer.Exit(show_replay(run, trial, at, frames_of(fps)))


def export(
    run: Run,
    trial: Annotated[
        str | None,
        typer.Argument(
            metavar="TRIAL", help="Its id, or its label (copy-03/2); default: every finished one."
        ),
    ] = None,
    format: Annotated[
        Literal["cast", "atif", "jsonl", "html"],
        typer.Option(
            "--format",
            help="cast: the terminal, for asciinema players. atif: the trajectory, as Harbor"
            " writes it. jsonl: a line a model call, with token ids and log-probabilities. html:"
            " a page to read.",
        ),
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file, or the directory of many; -: the output."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="In place of files that are there.")
    ] = False,
) -> None:
    """Write a recorded trial, or all of a run, to files that others can read."""
    from tbtui.export.command import export as export_trials

    try:
        said = export_trials(run, trial, format, out, overwrite=overwrite)
    except UserError as error:
        refuse(error)
    if said:
        typer.echo(visible(said))
