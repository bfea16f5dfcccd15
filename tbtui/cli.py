"""The command line: turns arguments into a validated config and starts one thing.

Nothing heavy is imported before it is needed: `tbtui --help` answers at once.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, override

import typer
from typer.core import TyperCommand

from tbtui.ctl.app import ctl_app

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
    help="Look at tasks, choose among them, fetch more, try one.",
    no_args_is_help=True,
    rich_markup_mode=None,
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


app.add_typer(ctl_app, name="ctl", short_help="Look at runs and steer live ones, from scripts.")


runs_app = typer.Typer(help="List live and past runs, or search them.", rich_markup_mode=None)
app.add_typer(runs_app, name="runs", short_help="List live and past runs, or search them.")


FramesPerSecond = Annotated[
    str | None,
    typer.Option(
        "--fps",
        metavar="low|normal|N",
        help="Frames a second, at most 10; low for slow links. Default: app.toml's.",
    ),
]


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


def _frames(text: str | None) -> int | None:
    from tbtui.ui.settings import frames_per_second

    try:
        return None if text is None else frames_per_second(text)
    except ValueError as error:
        _refuse(f"--{error}")


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
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Start a run that outlives this terminal; print where it is (--json: a record)"
            " once it has begun.",
        ),
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting in force and leave.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print what each outcome of a trial leads to and leave."),
    ] = False,
    fps: FramesPerSecond = None,
) -> None:
    from tbtui.config import ConfigError, parse_settings, to_toml

    frames = _frames(fps)
    try:
        config = parse_settings(settings or [])
        if print_config and config.engine == "prime-rl":
            from tbtui.prime_rl_cli import print_config as print_prime_rl_config

            raise typer.Exit(0 if print_prime_rl_config(settings or []) else EXIT_FAILED)
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
    if not (no_ui or as_json or detach) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        typer.echo("tbtui: not a terminal; running as with --no-ui", err=True)
        no_ui = True

    from tbtui import launch

    view: launch.View = "json" if as_json else "lines" if no_ui else "app"
    if resume is not None:
        raise typer.Exit(launch.resume(resume, settings or [], view, detach=detach, fps=frames))
    raise typer.Exit(launch.launch(config, view, detach=detach, fps=frames))


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


LogsDirectories = Annotated[
    list[Path] | None,
    typer.Option("--logs-dir", help="Directory of runs; may be repeated; default: logs_dir."),
]


@runs_app.callback(invoke_without_command=True)
def list_runs(
    context: typer.Context,
    logs_dir: LogsDirectories = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List live and past runs: when, what, how far, pass rates first and last, how they ended."""
    if context.invoked_subcommand is None:
        from tbtui.runs import print_runs

        print_runs(logs_dir or [], as_json=as_json)


@runs_app.command("search", short_help="Find a text in the runs' transcripts.")
def search_runs(
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
    from tbtui.journal.rundir import RunDirectoryError
    from tbtui.runs import print_hits

    if not text.strip():
        _refuse("search: write what to look for")
    try:
        found = print_hits(text, run or [], logs_dir or [], as_json=as_json)
    except RunDirectoryError as error:
        _refuse(error)
    raise typer.Exit(0 if found else EXIT_FAILED)


@app.command("compare", short_help="Compare two runs.")
def compare_runs(
    first: Annotated[str, typer.Argument(metavar="A", help="A run's directory, or its name.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one's.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare two runs: pass rates, the settings that differ, and each task's mean reward."""
    from tbtui.compare import print_comparison
    from tbtui.config import ConfigError
    from tbtui.journal.rundir import RunDirectoryError
    from tbtui.journal.writer import JournalError

    try:
        print_comparison(first, second, as_json=as_json)
    except (ConfigError, JournalError, RunDirectoryError) as error:
        _refuse(error)


@app.command(short_help="Show a recorded run, with a clock.")
def replay(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, or its name.")],
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
    from tbtui.replay import replay as show_replay

    raise typer.Exit(show_replay(run, trial, at, _frames(fps)))


@app.command(short_help="Write trials to files for others: cast, ATIF, JSON lines, HTML.")
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, or its name.")],
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
    from tbtui.config import ConfigError
    from tbtui.export.command import export as export_trials
    from tbtui.export.record import ExportError
    from tbtui.journal.rundir import RunDirectoryError
    from tbtui.journal.timeline import TrialNameError
    from tbtui.journal.writer import JournalError

    try:
        said = export_trials(run, trial, format, out, overwrite=overwrite)
    except (ConfigError, ExportError, JournalError, RunDirectoryError, TrialNameError) as error:
        _refuse(error)
    if said:
        typer.echo(said)


@app.command(short_help="Join a live run: see it and steer it.")
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
    from tbtui.attach import attach as attach_to

    frames = _frames(fps)
    raise typer.Exit(
        attach_to(run, look=look, exclusive=exclusive, name=name, command=command, fps=frames)
    )


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


@tasks_app.command("browse", short_help="Choose what to train on.")
def browse_tasks(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIRECTORY]...",
            help="Of tasks, or a data set's name; default: the bundled and the fetched ones.",
        ),
    ] = None,
) -> None:
    """Browse tasks: search, read, select; save the selection as a set, or train on it at once."""
    if not _on_terminal():
        _refuse("tasks browse needs a terminal; tbtui tasks list prints them")
    from tbtui.catalog.errors import CatalogError
    from tbtui.config import parse_settings
    from tbtui.task_library import browse

    try:
        start = browse(directories or [])
    except CatalogError as error:
        _refuse(error)
    if start is not None:
        from tbtui import launch

        typer.echo(start.command)
        raise typer.Exit(launch.launch(parse_settings(start.settings), "app"))


@tasks_app.command("sets", short_help="List the saved sets, or one's tasks.")
def list_sets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of one set.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete that set.")] = False,
) -> None:
    """List the sets that were saved in the browser, or the tasks of one of them."""
    from tbtui.catalog.errors import CatalogError
    from tbtui.task_tables import print_sets, remove_set

    try:
        if delete and name is None:
            _refuse("--delete is of a set: tbtui tasks sets NAME --delete")
        if delete and name is not None:
            remove_set(name)
        else:
            print_sets(name)
    except CatalogError as error:
        _refuse(error)


@tasks_app.command("fetch", short_help="Fetch a data set of Harbor's registry.")
def fetch_tasks(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME[@VERSION]", help="Such as terminal-bench@2.0.")
    ] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="In place of ~/.local/share/tbtui/tasks.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List all data sets.")] = False,
    registry: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="Another registry than Harbor's.")
    ] = None,
) -> None:
    """Fetch a data set of Harbor's registry; tasks_dir=NAME@VERSION then means it.

    An interrupted fetch goes on where it was. Exit status: 0 it is there, 1 it can't be had now,
    2 there is no such data set, 130 interrupted.
    """
    import asyncio

    from tbtui.catalog.errors import CatalogError
    from tbtui.catalog.fetch import FetchError
    from tbtui.task_fetch import print_data_sets, print_fetch

    if (name is None) != listing:
        _refuse("name one data set to fetch, or give --list")
    try:
        asyncio.run(
            print_data_sets(registry) if name is None else print_fetch(name, into, registry)
        )
    except CatalogError as error:
        _refuse(error)
    except FetchError as error:
        typer.echo(f"tbtui: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        typer.echo("tbtui: interrupted; the same command goes on from here", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


@tasks_app.command("try", short_help="Run one trial of a task by hand.")
def try_task(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Its name, DATASET/NAME, or its directory.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|CHECKPOINT] NAME=VALUE",
            help="Whose weights; default: the starting ones. Settings as for run.",
        ),
    ] = None,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Run the task's own solution, not the policy.")
    ] = False,
    no_ui: Annotated[
        bool, typer.Option("--no-ui", help="Print lines instead of showing the app.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON event a line; implies --no-ui.")
    ] = False,
) -> None:
    """Run one real trial of a task, with a policy or with its own solution; nothing is trained.

    Exit status: 0 it has a reward, whatever it is, 1 it has none, 2 bad input, 130 interrupted.
    """
    from tbtui import launch
    from tbtui.task_try import try_task as run_trial

    view: launch.View = "json" if as_json else "lines" if no_ui or not _on_terminal() else "app"
    raise typer.Exit(run_trial(task, arguments or [], oracle=oracle, view=view))


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


@prime_rl_app.command("check", short_help="Say what stands in the way of a run.")
def check_prime_rl(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE|FILE.toml", help="Settings, as for run."),
    ] = None,
) -> None:
    """Say whether Prime-RL could be launched here with these settings; nothing is started.

    Its checkout and commits, GPUs, ports, disk, tbtui's plugin in its environment, its verdict on
    the file. Exit status: 0 a run could begin, 1 something is missing, 2 bad input.
    """
    from tbtui.engines.make_run import BAD_INPUT
    from tbtui.prime_rl_cli import print_check

    try:
        ready = print_check(settings or [])
    except BAD_INPUT as error:
        _refuse(error)
    raise typer.Exit(0 if ready else EXIT_FAILED)


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
    trials_dir: Annotated[
        Path | None,
        typer.Option(help="trials_dir of tbtui's plugin there; else as the configuration says."),
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
        watch(
            directory,
            into,
            once=once,
            urls=vllm_url or [],
            stall=stall_after,
            as_json=as_json,
            trials_dir=trials_dir,
        )
    )


def main() -> None:
    # What is imported at the start stays for good: looking through it for garbage over and over
    # takes a tenth of the start. Whoever shows the run switches the collector on again.
    gc.disable()
    app()
