"""What the commands of `tbtui ctl` have in common. Nothing but Typer is imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tbtui.command_line import EXIT_INTERRUPTED, refuse
from tbtui.errors import UserError

if TYPE_CHECKING:
    from tbtui.ctl.changes import Manner

Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Default: the only live one.")]
OfRun = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Default: the only live one.")
]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="Its id, or its label if it is live.")]
LogsDir = Annotated[
    Path | None, typer.Option("--logs-dir", help="Where runs are looked for, too; default: runs.")
]
Ended = Annotated[bool, typer.Option("--ended", help="Those that are over, too.")]
Content = Annotated[
    bool,
    typer.Option("--content", help="Also what the model and its programs wrote: don't trust it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str, typer.Option("--reason", help="Kept in the journal.")]
Actor = Annotated[str, typer.Option("--actor", help="Who asks; default: the user.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be asked.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="For what comes of it.")]
Patience = Annotated[
    float | None, typer.Option("--timeout", metavar="SEC", min=0, help="Wait no longer.")
]


def manner_of(
    reason: str, actor: str, dry_run: bool, wait: bool, patience: float | None, as_json: bool
) -> Manner:
    from tbtui.ctl.changes import Manner

    return Manner(reason, actor, dry_run, wait, patience, as_json)


def do[T](what: Callable[[], T]) -> T:
    try:
        return what()
    except UserError as error:
        refuse(error)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
