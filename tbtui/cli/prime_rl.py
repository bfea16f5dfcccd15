"""`tbtui prime-rl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tbtui.command_line import EXIT_FAILED, noun, say
from tbtui.terminal import visible

if TYPE_CHECKING:
    from tbtui.config import RunConfig

_GLYPHS = MappingProxyType({"ok": "✓", "warning": "!", "error": "✗"})

Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE|FILE.toml", help="Settings, as for run."),
]

prime_rl_app = noun(
    "Write a configuration for Prime-RL, update an old one, check this machine, or watch a run."
)


@prime_rl_app.command("config", short_help="Print Prime-RL's file for these settings.")
def config(
    settings: Settings = None,
) -> None:
    """Print the TOML file for Prime-RL that these settings make.

    With PRIME_RL_DIR, or prime-rl-configs installed, Prime-RL's own classes check it. Exit status:
    2 for settings that Prime-RL does not have, 1 for a file that it refuses.
    """
    from tbtui.config import parse_settings

    valid = print_configuration(parse_settings(settings or []))
    raise typer.Exit(0 if valid else EXIT_FAILED)


@prime_rl_app.command("check", short_help="Check whether a run could start here.")
def check(
    settings: Settings = None,
) -> None:
    """Check whether Prime-RL could be launched here with these settings. Nothing is started.

    Checks its checkout and commits, GPUs, ports, disk, tbtui's plugin in its environment, and has
    Prime-RL validate the file. Exit status: 0 a run could start, 1 something is missing, 2 bad
    input.
    """
    import asyncio

    from tbtui.config import parse_settings
    from tbtui.engines.prime_rl.launch.prepare import check_launch

    findings = asyncio.run(check_launch(parse_settings(settings or [])))
    for finding in findings:
        typer.echo(f"{_GLYPHS[finding.level]} {visible(finding.text)}")
    raise typer.Exit(EXIT_FAILED if any(it.level == "error" for it in findings) else 0)


@prime_rl_app.command("migrate", short_help="Update an older file.")
def migrate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file of Prime-RL.")],
) -> None:
    """Print an older configuration file of Prime-RL in today's form.

    Changed keys go to standard error, a line each. Comments are lost. The file is checked as by
    config, with the same exit status.
    """
    from tbtui.config.toml import read_toml
    from tbtui.engines.prime_rl.migrate import migrate as migrated

    toml, changes = migrated(read_toml(file))
    for change in changes:
        typer.echo(visible(str(change)), err=True)
    if not changes:
        say(f"{file}: nothing to change")
    valid = _print_valid(toml)
    raise typer.Exit(0 if valid else EXIT_FAILED)


@prime_rl_app.command("watch", short_help="Watch a run through the files it writes.")
def watch(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Prime-RL's output_dir/run.name.")
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the journal, new or an earlier watch's; default: runs/NAME."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there and exit.")] = False,
    vllm_url: Annotated[
        list[str] | None,
        typer.Option(help="URL of an inference server, to read its metrics; may be repeated."),
    ] = None,
    trials_dir: Annotated[
        Path | None,
        typer.Option(help="trials_dir of tbtui's plugin; default: the one in the configuration."),
    ] = None,
    stall_after: Annotated[
        float,
        typer.Option(min=1, help="Warn after so many seconds without progress."),
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON event a line.")] = False,
) -> None:
    """Watch a Prime-RL run through the files it writes: steps, rollouts, checkpoints, its end.

    Nothing is written to its directory, and the run goes on when the watcher exits. Exit status:
    0 finished, 1 it can't be read (the reason is the last line), 2 bad input, 130 interrupted.
    """
    from tbtui.commands.prime_rl_watch import watch as follow

    raise typer.Exit(
        follow(
            directory,
            into,
            once=once,
            urls=vllm_url or [],
            stall=stall_after,
            as_json=as_json,
            trials_dir=trials_dir,
        )
    )


def print_configuration(config: RunConfig) -> bool:
    """Print Prime-RL's file for these settings, and warnings on standard error.

    Returns False if Prime-RL refuses the file, True if it accepts it or could not be asked.

    Raises:
        ConfigError: a setting can't be used, or not by Prime-RL.
    """
    from tbtui.engines.prime_rl.launch.configuration import configuration_of

    configuration = configuration_of(config)
    for change in configuration.changes:
        typer.echo(visible(str(change)), err=True)
    for text in configuration.warnings:
        say(text)
    return _print_valid(configuration.toml, config.prime_rl_dir)


def _print_valid(toml: Mapping[str, Any], checkout: Path | None = None) -> bool:
    from tbtui.config.toml import toml_text
    from tbtui.engines.prime_rl.launch.checkout import validate

    typer.echo(toml_text(toml), nl=False)
    verdict = validate(toml, checkout)
    if verdict.by is None:
        say(f"not validated: {verdict.unchecked}")
    for error in verdict.errors:
        say(f"Prime-RL refuses it: {error}")
    if verdict.by is not None and not verdict.errors:
        say(f"valid, by {verdict.by}")
    return not verdict.errors
