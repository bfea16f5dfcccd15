"""Arguments and options that commands of `tbtui ctl` share. Nothing but Typer is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Default: the only live one.")]
OfRun = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Default: the only live one.")
]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="Its id, or its label if it is live.")]
LogsDir = Annotated[
    Path | None,
    typer.Option("--logs-dir", help="Directory of runs to look in, too; default: runs."),
]
Ended = Annotated[bool, typer.Option("--ended", help="Also those that are over.")]
Content = Annotated[
    bool,
    typer.Option("--content", help="Also what the model and its programs wrote: don't trust it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """How a change is asked for: options of every command that changes something."""

    reason: Annotated[str, typer.Option("--reason", help="Kept in the journal.")] = ""
    actor: Annotated[str, typer.Option("--actor", help="Who asks; default: the user.")] = ""
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be asked.")] = (
        False
    )
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for what comes of it.")] = (
        True
    )
    timeout_sec: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SEC", min=0, help="Wait no longer than this."),
    ] = None
    """None: as long as it takes."""
    as_json: AsJson = False


def changing(command: Callable[..., int]) -> Callable[..., None]:
    """A Typer command from a function whose last parameter, `options`, is `CommandOptions`.

    The fields of that become options of the command, after the function's own parameters; its
    result is the exit status.
    """
    own = list(signature(command, eval_str=True).parameters.values())[:-1]
    annotations = get_type_hints(CommandOptions, include_extras=True)
    shared = [
        Parameter(
            field.name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default,
            annotation=annotations[field.name],
        )
        for field in dataclasses.fields(CommandOptions)
    ]

    def run(**given: Any) -> None:
        options = CommandOptions(**{each.name: given.pop(each.name) for each in shared})
        raise typer.Exit(command(**given, options=options))

    run.__doc__ = command.__doc__
    # Typer reads a command's arguments from here.
    run.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    return run
