"""The command line: turns arguments into a validated config and starts one thing.

Nothing heavy is imported before it is needed: `tbtui --help` answers at once.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, override

import typer
from typer.core import TyperCommand

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="tbtui",
    help="Train language models on terminal tasks; see and steer every trial while it happens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Typer's rich help takes 0.35 s to import.
    rich_markup_mode=None,
)
tasks_app = typer.Typer(
    help="List tasks, or check a directory of them.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(tasks_app, name="tasks")


class _RunCommand(TyperCommand):
    """`run`, whose help lists every setting."""

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        from tbtui.config import setting_rows

        super().format_options(ctx, formatter)
        for heading, rows in setting_rows():
            with formatter.section(heading):
                formatter.write_dl(rows)


def _refuse(error: object) -> NoReturn:
    typer.echo(f"tbtui: {error}", err=True)
    raise typer.Exit(EXIT_BAD_INPUT)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"tbtui {installed('tbtui')}")
        raise typer.Exit


@app.command(
    cls=_RunCommand,
    help="Train a model on terminal tasks.\n\n"
    "With no settings at all: the embedded model, on the bundled starter tasks, in sandboxes of"
    " this machine.\n\n"
    "Exit status: 0 finished, 1 failed (the reason is the last line), 2 bad input,"
    " 130 interrupted.",
)
def run(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE|FILE.toml", help="Settings; all of them are listed below."
        ),
    ] = None,
    no_ui: Annotated[
        bool, typer.Option("--no-ui", help="Print lines instead of showing the app.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON event a line; implies --no-ui.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting in force and leave.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print what each outcome of a trial leads to and leave."),
    ] = False,
) -> None:
    from tbtui.config import ConfigError, parse_settings, to_toml

    try:
        config = parse_settings(settings or [])
        if explain:
            from tbtui.explain import print_explanation

            print_explanation(config)
    except ConfigError as error:
        _refuse(error)
    if print_config:
        typer.echo(to_toml(config), nl=False)
    if explain or print_config:
        return
    if not (no_ui or as_json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        typer.echo("tbtui: not a terminal; running as with --no-ui", err=True)
        no_ui = True

    from tbtui.launch import launch

    raise typer.Exit(launch(config, "json" if as_json else "lines" if no_ui else "app"))


@app.command()
def doctor() -> None:
    """Say what this machine can and can't do, and what to do about it."""
    from tbtui.doctor import print_report

    raise typer.Exit(print_report())


TasksDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="DIRECTORY", help="Harbor tasks; default: all bundled ones."),
]


@tasks_app.command("list")
def list_tasks(directory: TasksDirectory = None) -> None:
    """List the tasks of a directory and how each would be used."""
    from tbtui.catalog.tasks import CatalogError
    from tbtui.task_tables import print_tasks

    try:
        print_tasks(directory)
    except CatalogError as error:
        _refuse(error)


@tasks_app.command("check")
def check_tasks(directory: TasksDirectory = None) -> None:
    """Check every task of a directory: each defect with its file, its reason and a remedy."""
    import asyncio

    from tbtui.catalog.tasks import CatalogError
    from tbtui.task_tables import print_check

    try:
        usable = asyncio.run(print_check(directory))
    except CatalogError as error:
        _refuse(error)
    raise typer.Exit(0 if usable else EXIT_FAILED)


def main() -> None:
    # What is imported at the start stays for good: looking through it for garbage over and over
    # takes a tenth of the start. Whoever shows the run switches the collector on again.
    gc.disable()
    app()
