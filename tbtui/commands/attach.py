"""`tbtui attach`: the app on a run of another process, on this machine or behind ssh.

Leaving it leaves the run alone. Several people may look at once; one of them has the controls
(`tbtui.engines.control.controls`).
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import typer

from tbtui.engines.control.attached import AttachedRun
from tbtui.journal.rundir import writer

_REFUSED = 2


@dataclass(frozen=True, slots=True)
class Place:
    """A run on another machine."""

    host: str
    port: int | None
    run: str


def attach(
    place: str | None,
    *,
    look: bool,
    exclusive: bool,
    name: str,
    command: str,
    fps: int | None = None,
) -> int:
    """Show the run; the exit status: 0 people left it, or it finished; 1 it failed; 2 bad input.

    Args:
        place: a run by path or name, here or on another machine; None: the only live one.
        look: never ask for the controls.
        exclusive: take them, and keep scripts out too.
        name: of who looks; empty: the user.
        command: how tbtui is started on another machine.
        fps: frames a second; None: the person's setting.
    """
    from tbtui.ctl.targets import TargetError, choose_run

    try:
        if place is not None and (remote := remote_place(place)) is not None:
            return _over_ssh(remote, _options(look, exclusive, name, fps), command)
        directory = choose_run(place)
        if writer(directory) is None:
            raise TargetError(
                f"{directory.name} is not live; to look at it: tbtui replay {directory.path}; to go"
                f" on with it: tbtui run --resume {directory.path}"
            )
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise TargetError("attach needs a terminal; without one: tbtui ctl")
    except TargetError as error:
        typer.echo(f"tbtui: {error}", err=True)
        return _REFUSED
    from tbtui.show_run import show_run

    return show_run(AttachedRun(directory, name, take=not look, exclusive=exclusive), fps=fps)


def remote_place(text: str) -> Place | None:
    """`ssh://[USER@]HOST[:PORT][/RUN]` or `HOST:RUN`; None: it is on this machine.

    A path on the other machine is absolute, or begins with `~`; anything else is a run's name.
    """
    if text.startswith("ssh://"):
        parts = urlsplit(text)
        host = parts.netloc.rpartition(":")[0] if parts.port else parts.netloc
        run = parts.path.removeprefix("/") if parts.path.startswith("/~") else parts.path
        return Place(host, parts.port, run)
    host, colon, run = text.partition(":")
    if not colon or "/" in host or not host or Path(text).exists():
        return None
    return Place(host, None, run)


def _options(look: bool, exclusive: bool, name: str, fps: int | None) -> list[str]:
    options = ["--look"] if look else ["--exclusive"] if exclusive else []
    options += ["--fps", str(fps)] if fps else []
    return [*options, "--name", name] if name else options


def _over_ssh(place: Place, options: list[str], command: str) -> int:
    """Become `ssh -t HOST tbtui attach RUN`: the app runs there, beside the run."""
    from tbtui.ctl.targets import TargetError

    if not place.host or place.host.startswith("-"):
        raise TargetError(f"{place.host!r} is no host")
    arguments = shlex.join(["attach", *options, *([place.run] if place.run else [])])
    port = ["-p", str(place.port)] if place.port else []
    try:
        os.execvp("ssh", ["ssh", "-t", *port, "--", place.host, f"{command} {arguments}"])
    except OSError as error:
        raise TargetError(f"ssh can't be started ({error.strerror})") from error
