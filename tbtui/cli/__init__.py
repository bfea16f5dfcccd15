"""The command line: turns arguments into a validated config and starts one thing.

Nothing heavy is imported before it is needed: `tbtui --help` answers at once, and a command waits
for its own module alone. A module holds the commands of one noun; here they are put together, in
the order in which `--help` lists them.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, override

import typer
from typer.main import get_group

from tbtui.command_line import EXIT_FAILED, CommandGroup, refuse, say
from tbtui.invocation import note_caller
from tbtui.terminal import set_delays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _run(app: typer.Typer) -> None:
    from tbtui.cli import run

    app.command("run", cls=run.RunCommand)(run.run)
    app.command("eval", short_help="Evaluate weights on held-out tasks.")(run.evaluate)
    app.command("probe", short_help="Try a model on a few tasks, before a run.")(run.probe)
    app.command("fork", short_help="Go on from a turn of a trial, several times.")(run.fork)
    app.command("bisect", short_help="Find the checkpoint at which a task was won or lost.")(
        run.bisect
    )


def _runs(app: typer.Typer) -> None:
    from tbtui.cli import runs

    app.command("compare", short_help="Compare two runs.")(runs.compare)
    app.command("diagnose", short_help="Rank what is wrong with a run, and what to do.")(
        runs.diagnose
    )
    app.command("replay", short_help="Show a recorded run, with a clock.")(runs.replay)
    app.command(
        "export", short_help="Write trials to files (cast, ATIF, JSON lines, HTML), or charts."
    )(runs.export)
    app.command("export-model", short_help="Write a run's weights as a Hugging Face model.")(
        runs.export_model
    )
    app.add_typer(runs.runs_app, name="runs", short_help="List live and past runs, or search them.")
    app.command("attach", short_help="Join a live run: see it and steer it.")(runs.attach)
    app.command("serve", short_help="Show a run in browsers, to look at only.")(runs.serve)
    app.command("fleet", short_help="Every live and recent run, here and on other machines.")(
        runs.fleet
    )
    app.command("sweep", short_help="Start a grid or a list of runs, some at once.")(runs.sweep)


def _demos(app: typer.Typer) -> None:
    from tbtui.cli import demos

    app.add_typer(
        demos.demos_app, name="demos", short_help="Review what people typed, to train on it."
    )


def _tools(app: typer.Typer) -> None:
    from tbtui.cli import tools

    app.command("guide", short_help="Read the guide, in the terminal.")(tools.guide)
    app.command("settings", short_help="Print every setting, or look one up.")(tools.settings)
    app.command("doctor")(tools.doctor)
    app.command("whatif", short_help="Recompute a recorded step with other settings.")(tools.whatif)


def _tasks(app: typer.Typer) -> None:
    from tbtui.cli import tasks

    app.add_typer(tasks.tasks_app, name="tasks")


def _prime_rl(app: typer.Typer) -> None:
    from tbtui.cli import prime_rl

    app.add_typer(
        prime_rl.prime_rl_app,
        name="prime-rl",
        short_help="Configure, migrate and watch Prime-RL runs.",
    )


def _ctl(app: typer.Typer) -> None:
    from tbtui.ctl.app import ctl_app

    app.add_typer(ctl_app, name="ctl", short_help="Look at runs and steer live ones, from scripts.")


COMMANDS: Mapping[str, Callable[[typer.Typer], None]] = MappingProxyType(
    {
        "run": _run,
        "eval": _run,
        "probe": _run,
        "fork": _run,
        "bisect": _run,
        "demos": _demos,
        "compare": _runs,
        "diagnose": _runs,
        "replay": _runs,
        "export": _runs,
        "export-model": _runs,
        "attach": _runs,
        "serve": _runs,
        "fleet": _runs,
        "sweep": _runs,
        "guide": _tools,
        "settings": _tools,
        "doctor": _tools,
        "whatif": _tools,
        "tasks": _tasks,
        "prime-rl": _prime_rl,
        "ctl": _ctl,
        "runs": _runs,
    }
)
"""Command -> the function that adds it, with the others of its module."""


class _Commands(CommandGroup):
    """Imports and builds the command that is asked for; all of them where they are listed."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        for name in COMMANDS:
            self._build(name)
        return list(COMMANDS)

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            self._build(cmd_name)
        else:
            # What may have been meant is looked for among all.
            self.list_commands(ctx)
        return super().get_command(ctx, cmd_name)

    def _build(self, name: str) -> None:
        if name not in self.commands:
            part = typer.Typer(rich_markup_mode=None)
            COMMANDS[name](part)
            self.commands.update(get_group(part).commands)


app = typer.Typer(
    name="tbtui",
    cls=_Commands,
    help="Train language models on terminal tasks; see and steer every trial while it happens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Typer's rich help takes 0.35 s to import.
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"tbtui {installed('tbtui')}")
        raise typer.Exit
    try:
        Path.cwd()
    except FileNotFoundError:
        refuse("the working directory is gone: cd to one that is there")


def main() -> None:
    # What is imported at the start stays for good: looking through it for garbage over and over
    # takes a tenth of the start. What shows the run switches the collector on again.
    gc.disable()
    set_delays(os.environ)
    note_caller(os.environ)
    _make_streams_usable()
    try:
        app()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        # What is left of the output goes nowhere, lest Python fails on it again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = error.filename or "the output"
        say(f"{where}: can't be written ({error.strerror})")
        sys.exit(EXIT_FAILED)
    finally:
        _drop_what_nobody_reads()


def _make_streams_usable() -> None:
    """Standard streams that are closed are empty ones from here on; output may have any text."""
    # In this order: each takes the lowest number that is free, which is its own.
    nothing = Path(os.devnull)
    sys.stdin = sys.stdin or nothing.open()
    sys.stdout = sys.stdout or nothing.open("w")
    sys.stderr = sys.stderr or nothing.open("w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_what_nobody_reads() -> None:
    """Send output whose terminal has gone nowhere.

    Python would fail on it at the exit, and end with a status of its own (120).
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
