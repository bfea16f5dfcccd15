"""`tbtui tasks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tbtui.cli.common import (
    EventsAsJson,
    Json,
    NoUi,
    view_of,
)
from tbtui.command_line import EXIT_FAILED, EXIT_INTERRUPTED, noun, refuse, say
from tbtui.invocation import to_type
from tbtui.terminal import on_terminal, visible

tasks_app = noun("Look at tasks, choose among them, fetch more, try one.")

TasksDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="DIRECTORY", help="Harbor tasks; default: all bundled ones."),
]


@tasks_app.command("list", short_help="List the tasks of a directory.")
def list_tasks(directory: TasksDirectory = None, as_json: Json = False) -> None:
    """List the tasks of a directory and how each would be used.

    In a pipe one line a task, its fields uncut and separated by tabs: data set, task, use,
    difficulty, category, and what it asks for.
    """
    from tbtui.commands.task_lists import print_tasks

    print_tasks(directory, as_json=as_json)


@tasks_app.command("check", short_help="Find every defect of a directory's tasks.")
def check_tasks(
    directory: TasksDirectory = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="Print errors only, no warnings.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every defect.")
    ] = False,
) -> None:
    """Check every task of a directory: each error with its file, its reason and a remedy, and
    warnings by kind.

    Exit status: 0 all tasks can be used, 1 some can't, 2 there are none.
    """
    from tbtui.commands import task_lists

    usable = task_lists.check_tasks(directory, errors_only=errors, as_json=as_json)
    raise typer.Exit(0 if usable else EXIT_FAILED)


@tasks_app.command("browse", short_help="Choose what to train on.")
def browse_tasks(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIRECTORY]...",
            help="A directory of tasks, or a data set's name; default: all bundled and fetched.",
        ),
    ] = None,
) -> None:
    """Browse tasks: search, read, select; save the selection as a set, or train on it at once."""
    if not on_terminal():
        refuse(f"tasks browse needs a terminal; {to_type('tasks', 'list')} prints them")
    from tbtui.config import parse_settings
    from tbtui.task_library import browse

    start = browse(directories or [])
    if start is not None:
        from tbtui import launch

        typer.echo(start.command)
        raise typer.Exit(launch.launch(parse_settings(start.settings), "app"))


@tasks_app.command("sets", short_help="List the saved sets, or one's tasks.")
def list_sets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A set's name.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete that set.")] = False,
) -> None:
    """List the sets that were saved in the browser, or the tasks of one of them."""
    from tbtui.commands.task_lists import print_sets, remove_set

    if delete and name is None:
        refuse(f"--delete needs a set: {to_type('tasks', 'sets', 'NAME', '--delete')}")
    if delete and name is not None:
        remove_set(name)
    else:
        print_sets(name)


@tasks_app.command("fetch", short_help="Fetch a data set of Harbor's registry.")
def fetch_tasks(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME[@VERSION]",
            help="Such as terminal-bench@2.0, or ORG/NAME[@REF], a package of Harbor's hub.",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to put it; default: ~/.local/share/tbtui/tasks."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List all data sets.")] = False,
    registry: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="A registry other than Harbor's.")
    ] = None,
) -> None:
    """Fetch a data set of Harbor's registry; tasks_dir=NAME@VERSION then means it.

    Packages of Harbor's hub are called ORG/NAME@REF: a tag, a revision or a digest. An interrupted
    fetch goes on where it was. Exit status: 0 it is there, 1 it can't be had now, 2 there is no
    such data set, 130 interrupted.
    """
    import asyncio

    from tbtui.catalog.fetch import FetchError
    from tbtui.commands.task_fetch import print_data_sets, print_fetch

    if (name is None) != listing:
        refuse("name one data set to fetch, or give --list")
    try:
        asyncio.run(
            print_data_sets(registry) if name is None else print_fetch(name, into, registry)
        )
    except FetchError as error:
        say(error)
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        raise typer.Exit(EXIT_INTERRUPTED) from None


@tasks_app.command("prefetch", short_help="Fetch the packages that tasks install.")
def prefetch_tasks(
    directory: TasksDirectory = None,
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="VERSION|PATH", help="Fetch for one more interpreter; repeatable."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE", help="Leave out what needs this package; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be asked for.")
    ] = False,
) -> None:
    """Fetch the Python packages that tasks' Dockerfiles, tests and solutions install.

    Sandboxes without a network then install from them: pip, uv and uvx work there. Fetches with
    your own uv, pip and their settings; what is there already is not fetched again.

    Exit status: 0 all is there, 1 something could not be had, 2 bad input, 130 interrupted.
    """
    import asyncio

    from tbtui.commands.task_fetch import print_prefetch
    from tbtui.wheels.filling import FillError

    try:
        whole = asyncio.run(print_prefetch(directory, python or [], skip or [], dry_run=dry_run))
    except (FillError, OSError) as error:
        say(error)
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    raise typer.Exit(0 if whole else EXIT_FAILED)


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
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Run its solution, all cheats and attempts of the policy, side by side."
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="As --all, anew each time a file of the task is saved.")
    ] = False,
    attempts: Annotated[
        int, typer.Option("--attempts", min=0, help="The policy's, with --all and --watch.")
    ] = 4,
    no_ui: NoUi = False,
    as_json: EventsAsJson = False,
) -> None:
    """Run one real trial of a task, with a policy or with its own solution; nothing is trained.

    With --all or --watch: its solution, doing nothing, every cheat and the policy, side by side; in
    the end what the task can be passed by, and how difficult it is for the policy.

    Exit status: 0 it has a reward, whatever it is, 1 it has none, 2 bad input, 130 interrupted.
    """
    from tbtui.commands.task_try import try_task as run_trial

    view = view_of(no_ui=no_ui, as_json=as_json)
    if everything or watch:
        from tbtui.commands.task_watch import try_everything

        raise typer.Exit(
            try_everything(task, arguments or [], attempts=attempts, watching=watch, view=view)
        )
    raise typer.Exit(run_trial(task, arguments or [], oracle=oracle, view=view))


Watch = Annotated[bool, typer.Option("--watch", help="Show the trials in the app meanwhile.")]
Chosen = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME", help="These tasks: a name, a glob or @SET; repeatable."),
]
TrialSettings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME=VALUE]...", help="Settings as for run: environment_type, ..."),
]
AuditedDirectory = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="Harbor tasks, or a data set by name.")
]


@tasks_app.command("audit", short_help="Try to cheat every task.")
def audit_tasks(
    directory: AuditedDirectory,
    settings: TrialSettings = None,
    task: Chosen = None,
    cheat: Annotated[
        list[str] | None,
        typer.Option("--cheat", metavar="NAME", help="These cheats; default: all. Repeatable."),
    ] = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Try a battery of cheats on every task, in real trials; any pass is proof, with its recording.

    Beside the task's own solution: do nothing, plant or rewrite the verdict, replace the test
    script, shells, Python, test runners and comparisons, edit tests, hard-code outputs, tricks with
    time and the network; and some of them on an impossible variant, whose verifier no honest work
    passes.

    Exit status: 0 no cheat passes and every solution does, 1 otherwise, 2 bad input.
    """
    from tbtui.commands.task_audit import audit

    status = audit(
        directory,
        settings or [],
        tasks=task or [],
        cheats=cheat or [],
        as_json=as_json,
        watch=watch,
    )
    raise typer.Exit(status)


@tasks_app.command("flakes", short_help="Find tasks whose verdict changes.")
def find_flakes(
    directory: AuditedDirectory,
    settings: TrialSettings = None,
    repeats: Annotated[
        int, typer.Option("-n", "--repeats", min=2, help="Trials of each kind.")
    ] = 20,
    load: Annotated[
        int,
        typer.Option("--load", min=1, help="Under load: trials at once, and busy processes."),
    ] = 8,
    task: Chosen = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Repeat each task's solution, and doing nothing, alone and under load.

    A task whose verdict changes, or is wrong, is written into DIRECTORY/quarantine.toml with the
    figures; runs leave it out and name it. A task that is found good is taken out of it.

    Exit status: 0 every verdict is right, 1 otherwise, 2 bad input.
    """
    from tbtui.commands.task_flakes import flakes

    status = flakes(
        directory,
        settings or [],
        repeats=repeats,
        load=load,
        tasks=task or [],
        as_json=as_json,
        watch=watch,
    )
    raise typer.Exit(status)


@tasks_app.command("new", short_help="Begin a task of your own.")
def new_task(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its directory's name.")],
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="Where it is made.")] = Path(),
    pytest: Annotated[
        bool,
        typer.Option("--pytest", help="Harbor's pytest template, which needs a network."),
    ] = False,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="The verifier runs in the agent's box, not in its own."),
    ] = False,
) -> None:
    """Make a task with Harbor's own template: a small example that works, to write one's own from.

    Its verifier has a box of its own, where nothing that the agent leaves behind runs.
    """
    from tbtui.commands.task_new import new_task as make

    made = make(name, into, pytest=pytest, shared=shared)
    typer.echo(f"made     {visible(str(made))}")
    typer.echo(f"check    {visible(to_type('tasks', 'check', made))}")
    typer.echo(f"try      {visible(to_type('tasks', 'try', made, '--watch'))}")
