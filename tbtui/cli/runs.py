"""Runs that are there: `tbtui runs`, `compare`, `replay`, `export`, `attach` and `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tbtui.cli.common import FramesPerSecond, Json, NoUi, Run, frames_of
from tbtui.command_line import EXIT_FAILED, refuse
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
    context.obj = (logs_dir or [], as_json)  # `search` takes the options before it, too
    if context.invoked_subcommand is None:
        from tbtui.commands.runs import print_runs

        print_runs(logs_dir or [], as_json=as_json)


@runs_app.command("search", short_help="Find a text in the runs' transcripts.")
def search_runs(
    context: typer.Context,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="ASCII letters match in either case.")
    ],
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
    before, json_before = context.obj
    places = [*before, *(logs_dir or [])]
    found = print_hits(text, run or [], places, as_json=as_json or json_before)
    raise typer.Exit(0 if found else EXIT_FAILED)


@runs_app.command("note", short_help="Note something on a run, or print its notes.")
def note_run(
    run: Run,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="The note; without: print all.")
    ] = None,
) -> None:
    """Add a line to a run's notes, which the list of runs shows; or print them."""
    from tbtui.commands.runs import note

    note(run, " ".join(text or []))


@runs_app.command("rename", short_help="Give a run another name.")
def rename_run(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
) -> None:
    """Give a run that is not live another name, that of its directory.

    The old name stays as a link: checkpoints in settings, scripts and replays still find the run.
    """
    from tbtui.commands.runs import rename

    rename(run, name)


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A run's directory, or its name.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The other run's.")],
    as_json: Json = False,
) -> None:
    """Compare two runs: pass rates, the settings that differ, and each task's mean reward."""
    from tbtui.commands.compare import print_comparison

    print_comparison(first, second, as_json=as_json)


def diagnose(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="A run's directory, or its name; default: the only live one."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Rank what is wrong with a run, live or past: number, trend, trials, the setting to change.

    Exit status: 0 nothing that costs trials, signal or time, 1 something does, 2 bad input.
    """
    from tbtui.commands.diagnose import print_diagnosis

    raise typer.Exit(EXIT_FAILED if print_diagnosis(run, as_json=as_json) else 0)


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
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", metavar="RUN", help="Overlay its curves; repeatable."),
    ] = None,
) -> None:
    """Show a recorded run on the screens of a live one, with a clock to play and move through it.

    Space plays, [ and ] go by turns, < and > to steps, alarms and lost trials; ? has all keys.
    """
    from tbtui.commands.attach import replay as show_replay

    raise typer.Exit(show_replay(run, trial, at, frames_of(fps), beside=beside or []))


def export(
    run: Run,
    trial: Annotated[
        str | None,
        typer.Argument(
            metavar="TRIAL", help="Its id, or its label (copy-03/2); default: every finished one."
        ),
    ] = None,
    format: Annotated[
        Literal["cast", "atif", "jsonl", "html", "svg", "csv"],
        typer.Option(
            "--format",
            help="cast: the terminal, for asciinema players. atif: the trajectory, as Harbor"
            " writes it. jsonl: a line a model call, with token ids and log-probabilities. html:"
            " a page to read. svg, csv: metrics, as a chart or as values.",
        ),
    ] = "html",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="With svg or csv, may be repeated: a metric; default: training reward and held-out"
            " pass rate; all: every one (csv).",
        ),
    ] = None,
    x: Annotated[
        Literal["step", "time", "rollouts", "tokens", "position"],
        typer.Option(
            "--x",
            help="With svg or csv: the x axis. position: entropy (mean -log p) by token position"
            " of the last step, or of --step.",
        ),
    ] = "step",
    step: Annotated[int | None, typer.Option("--step", help="The step of --x position.")] = None,
    smoothing: Annotated[
        float, typer.Option("--smoothing", min=0, max=0.999, help="Weight of the average (svg).")
    ] = 0.0,
    log: Annotated[bool, typer.Option("--log", help="A logarithmic y axis (svg).")] = False,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="RUN", help="With svg or csv: another run; repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A file, or a directory for several; -: standard output."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that exist.")
    ] = False,
) -> None:
    """Write a recorded trial, or all of a run, to files that others can read; or its metrics."""
    if format == "svg" or format == "csv":
        from tbtui.export.files import export_chart
        from tbtui.view.charts import ChartRequest

        if trial is not None:
            refuse(f"--format {format} is of a run's metrics: leave {trial} out")
        metrics = tuple(dict.fromkeys(metric or ()))
        request = ChartRequest(metrics, axis=x, step=step, smoothing=smoothing, log=log)
        said = export_chart([run, *(beside or [])], request, format, out, overwrite=overwrite)
        if said:
            typer.echo(visible(said))
        return
    if metric or beside or x != "step" or step is not None or smoothing or log:
        refuse("--metric, --x, --step, --smoothing, --log and --with need --format svg or csv")
    from tbtui.export.files import export as export_trials

    said = export_trials(run, trial, format, out, overwrite=overwrite)
    if said:
        typer.echo(visible(said))


def export_model(
    run: Run,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    step: Annotated[
        int | None,
        typer.Option(help="Step of the checkpoint; default: the best held-out pass rate's."),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add the adapter to its base: a whole model.")
    ] = False,
) -> None:
    """Write a run's weights as a Hugging Face model, with its tokenizer and a model card.

    An adapter (policy=torch) is written as PEFT keeps it; all weights, and with --merge, as a model
    that transformers and vLLM load by its directory.
    """
    from tbtui.commands.export_model import export_model as write

    write(run, directory, step=step, merge=merge)


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
        bool, typer.Option("--look", help="Watch only; don't ask for the controls.")
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

    Several people may look; one has the controls. The first to come gets them; C takes them.

    On another machine the app runs there, through ssh.
    """
    from tbtui.commands.attach import attach as attach_to

    frames = frames_of(fps)
    raise typer.Exit(
        attach_to(run, look=look, exclusive=exclusive, name=name, command=command, fps=frames)
    )


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
        typer.Option("--anyone", help="Ask for no token: anyone who reaches it can read the run."),
    ] = False,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where browsers find it, behind a proxy."),
    ] = None,
) -> None:
    """Show a run in browsers, live or past: all its screens, without any control over it.

    Open the address that it prints: it holds a token, a new one each time unless the environment
    has one (TBTUI_SERVE_TOKEN). From another machine: ssh -L 8000:localhost:8000. Each tab has a
    process of its own, at most 8. Needs the extra serve.

    Exit status: 0 ended by ctrl-c, 2 bad input.
    """
    from tbtui.serve.command import serve as serve_run

    raise typer.Exit(serve_run(run, host, port, anyone=anyone, public_url=public_url))


def fleet(
    logs_dir: LogsDirectories = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Ask this machine too, through ssh: HOST, USER@HOST or HOST:PORT; repeatable.",
        ),
    ] = None,
    recent: Annotated[
        float | None,
        typer.Option("--recent", metavar="HOURS", min=0, help="List what ended so long ago."),
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="This machine alone.")] = False,
    no_ui: NoUi = False,
    as_json: Json = False,
) -> None:
    """Show every live and recent run of this machine and of others: state, step, pass rate, what
    it waits for, alarms, cost, GPUs.

    Hosts are those of ~/.config/tbtui/fleet.toml (hosts = ["gpu1", "me@gpu2:2222"]) and of --host.
    In the app: enter opens a run, p pauses or resumes it, s stops it, space marks, c overlays the
    curves of the marked ones.
    """
    from tbtui.commands.fleet import fleet as show

    show(logs_dir or [], host or [], recent_hours=recent, here=here, as_json=as_json, no_ui=no_ui)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The grid, or the runs.")],
    table: Annotated[
        bool, typer.Option("--table", help="Start nothing: print the table as it stands.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start a grid or a list of runs, some at once, and print a table with intervals over seeds.

    The same command goes on after an interruption, kill -9 included: runs that are over stay, those
    that live are waited for, the others are resumed or started.

    Exit status: 0 all have finished, 1 some have not, 2 bad input, 130 interrupted.
    """
    from tbtui.commands.sweep import sweep as run_sweep

    raise typer.Exit(run_sweep(file, table_only=table, as_json=as_json))


@runs_app.command("journal", short_help="Write a copy of a run's journal to the output.")
def copy_journal(run: Run) -> None:
    """Write a copy of a run's journal to the output, as it stands: an SQLite database."""
    from tbtui.commands.runs import write_journal

    write_journal(run)
