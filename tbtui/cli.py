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
prime_rl_app = typer.Typer(
    help="Write a configuration for Prime-RL, bring an old one up to date, or watch a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(
    prime_rl_app, name="prime-rl", short_help="Configure, migrate and watch Prime-RL runs."
)


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
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with this run: its directory, or its name in logs_dir. Settings given"
            " here replace the run's own where they may.",
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
        if print_config:
            from tbtui.engines.honoured import require_consistent

            for text in require_consistent(config):
                typer.echo(f"tbtui: {text}", err=True)
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

    from tbtui import launch

    view: launch.View = "json" if as_json else "lines" if no_ui else "app"
    if resume is not None:
        raise typer.Exit(launch.resume(resume, settings or [], view))
    raise typer.Exit(launch.launch(config, view))


@app.command(
    "eval",
    short_help="Evaluate weights on held-out tasks.",
    help="Evaluate weights on held-out tasks, without training them: a run's best (or --latest)"
    " checkpoint, a checkpoint directory or, with neither, the starting weights.\n\n"
    "Settings are those of the run that the checkpoint is of, with yours over them; tasks_dir,"
    " eval_tasks, eval_group_size (attempts at each task, for pass@k) and eval_temperature say"
    " what is attempted and how often.\n\n"
    "Exit status: 0 finished, 1 failed (the reason is the last line), 2 bad input,"
    " 130 interrupted.",
)
def evaluate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|CHECKPOINT] NAME=VALUE", help="What to evaluate; settings as for run."
        ),
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="The run's latest checkpoint, not its best.")
    ] = False,
    no_ui: Annotated[
        bool, typer.Option("--no-ui", help="Print lines instead of showing the app.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON event a line; implies --no-ui.")
    ] = False,
) -> None:
    from tbtui import launch
    from tbtui.evaluate import evaluate as run_evaluation

    view: launch.View = "json" if as_json else "lines" if no_ui or not _on_terminal() else "app"
    raise typer.Exit(run_evaluation(arguments or [], use_latest=latest, view=view))


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@app.command("settings", short_help="Print every setting, as Markdown.")
def list_settings() -> None:
    """Print every setting with its default, unit, meaning and reason, as Markdown."""
    from tbtui.config import settings_markdown

    typer.echo(settings_markdown(), nl=False)


@app.command()
def doctor() -> None:
    """Say what this machine can and can't do, and what to do about it."""
    from tbtui.doctor import print_report

    raise typer.Exit(print_report())


@app.command(short_help="Recompute a recorded step with other settings.")
def whatif(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, or its name.")],
    step: Annotated[
        int | None, typer.Option(help="Training step; default: the last one with scored groups.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Another loss_fn.")] = None,
    advantage: Annotated[str | None, typer.Option(help="Another advantage.")] = None,
    normalizer: Annotated[str | None, typer.Option(help="Another loss_normalizer.")] = None,
    clip_low: Annotated[float | None, typer.Option(help="Another clip_low.")] = None,
    clip_high: Annotated[float | None, typer.Option(help="Another clip_high.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Recompute a recorded step's advantages and gradient shares under other settings."""
    from tbtui.config import ConfigError
    from tbtui.journal.rundir import RunDirectoryError
    from tbtui.journal.writer import JournalError
    from tbtui.whatif.recorded import WhatIfError
    from tbtui.whatif.report import print_whatif

    changes = {
        "loss_fn": loss,
        "advantage": advantage,
        "loss_normalizer": normalizer,
        "clip_low": clip_low,
        "clip_high": clip_high,
    }
    try:
        print_whatif(run, step, changes, as_json)
    except (ConfigError, JournalError, RunDirectoryError, WhatIfError) as error:
        _refuse(error)


TasksDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="DIRECTORY", help="Harbor tasks; default: all bundled ones."),
]


@tasks_app.command("list", short_help="List the tasks of a directory.")
def list_tasks(directory: TasksDirectory = None) -> None:
    """List the tasks of a directory and how each would be used."""
    from tbtui.catalog.tasks import CatalogError
    from tbtui.task_tables import print_tasks

    try:
        print_tasks(directory)
    except CatalogError as error:
        _refuse(error)


@tasks_app.command("check", short_help="Find every defect of a directory's tasks.")
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


@prime_rl_app.command("config", short_help="Print Prime-RL's file for these settings.")
def prime_rl_config(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE|FILE.toml", help="Settings, as for run."),
    ] = None,
) -> None:
    """Print the TOML file for Prime-RL that these settings mean.

    With PRIME_RL_DIR, or prime-rl-configs installed, Prime-RL's own classes check it. Exit status:
    2 for settings that Prime-RL has no place for, 1 for a file that it refuses.
    """
    from tbtui.config import ConfigError
    from tbtui.prime_rl_cli import print_config

    try:
        valid = print_config(settings or [])
    except ConfigError as error:
        _refuse(error)
    raise typer.Exit(0 if valid else EXIT_FAILED)


@prime_rl_app.command("migrate", short_help="Bring an older file up to date.")
def migrate_prime_rl(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file of Prime-RL.")],
) -> None:
    """Print an older configuration file of Prime-RL as today's takes it.

    What became of which key goes to standard error, a line each. Comments are not kept. Checked and
    exit status as for config.
    """
    from tbtui.config import ConfigError
    from tbtui.prime_rl_cli import print_migrated

    try:
        valid = print_migrated(file)
    except ConfigError as error:
        _refuse(error)
    raise typer.Exit(0 if valid else EXIT_FAILED)


@prime_rl_app.command("watch", short_help="Follow a run by what it writes.")
def watch_prime_rl(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Prime-RL's output_dir/run.name.")
    ],
    into: Annotated[
        Path | None,
        typer.Option(help="Directory of the journal, fresh or an earlier watch's; else runs/NAME."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there and leave.")] = False,
    vllm_url: Annotated[
        list[str] | None,
        typer.Option(help="Of an inference server, for its queue and cache; may be repeated."),
    ] = None,
    stall_after: Annotated[
        float, typer.Option(min=1, help="Say why nothing goes forward after so many seconds.")
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON event a line.")] = False,
) -> None:
    """Follow a run of Prime-RL's by what it writes: steps, rollouts, checkpoints, crashes.

    Nothing is written to its directory, and the run goes on when the watcher leaves. Exit status:
    0 finished, 1 the run failed (the reason is the last line), 2 bad input, 130 interrupted.
    """
    from tbtui.prime_rl_watch import watch

    raise typer.Exit(
        watch(directory, into, once=once, urls=vllm_url or [], stall=stall_after, as_json=as_json)
    )


def main() -> None:
    # What is imported at the start stays for good: looking through it for garbage over and over
    # takes a tenth of the start. Whoever shows the run switches the collector on again.
    gc.disable()
    app()
