"""`tbtui attach` and `tbtui replay`: the app on a run of another process, on this machine or behind
ssh, or on a recorded one, with a clock.

Leaving a live run leaves it alone. Several people may look at once; one of them has the controls
(`tbtui.engines.control.server`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from tbtui.config import parse_settings
from tbtui.engines.control.client import AttachedRun
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.database import require_format
from tbtui.journal.rundir import find_run, writer
from tbtui.journal.timeline import find_trial
from tbtui.paths import expanded
from tbtui.terminal import on_terminal


@dataclass(frozen=True, slots=True)
class RemoteRun:
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
    """Show the run. Returns the exit status: 0 it finished, or its viewer quit; 1 it failed.

    Args:
        place: a run by path or name, here or on another machine; None: the only live one.
        look: never ask for the controls.
        exclusive: take them, and keep scripts out too.
        name: of who looks; empty: the user.
        command: how tbtui is started on another machine.
        fps: frames a second; None: the person's setting.

    Raises:
        UserError: bad input.
    """
    from tbtui.ctl.targets import choose_run
    from tbtui.view.ending import not_live

    if place is not None and (remote := remote_place(place)) is not None:
        return _over_ssh(remote, _options(look, exclusive, name, fps), command)
    directory = choose_run(place)
    if writer(directory) is None:
        raise UserError(not_live(directory))
    if not on_terminal():
        raise UserError(f"attach needs a terminal; without one: {to_type('ctl')}")
    from tbtui.show_run import show_run

    return show_run(AttachedRun(directory, name, take=not look, exclusive=exclusive), fps=fps)


def remote_place(text: str) -> RemoteRun | None:
    """`ssh://[USER@]HOST[:PORT][/RUN]` or `HOST:RUN`; None: it is on this machine.

    A path on the other machine is absolute, or begins with `~`; anything else is a run's name.

    Raises:
        UserError: it begins with `ssh://` and goes on as no address does.
        PathError: no path can be so.
    """

    if text.startswith("ssh://"):
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise UserError(f"{text}: write it as ssh://HOST:PORT/RUN ({error})") from error
        host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
        run = parts.path.removeprefix("/") if parts.path.startswith("/~") else parts.path
        return RemoteRun(host, port, run)
    host, colon, run = text.partition(":")
    if not colon or "/" in host or not host or expanded(text).exists():
        return None
    return RemoteRun(host, None, run)


def _options(look: bool, exclusive: bool, name: str, fps: int | None) -> list[str]:
    options = ["--look"] if look else ["--exclusive"] if exclusive else []
    options += ["--fps", str(fps)] if fps else []
    return [*options, "--name", name] if name else options


def _over_ssh(place: RemoteRun, options: list[str], command: str) -> int:
    """Become `ssh -t HOST tbtui attach RUN`: the app runs there, beside the run."""

    if not place.host or place.host.rpartition("@")[2].startswith("-"):
        raise UserError(f"{place.host!r} is no host")
    if place.run.startswith("-"):
        raise UserError(f"{place.run!r} is no run: write a path or a name")
    run = ["--", place.run] if place.run else []
    arguments = shlex.join(["attach", *options, *run])
    port = ["-p", str(place.port)] if place.port is not None else []
    try:
        os.execvp("ssh", ["ssh", "-t", *port, "--", place.host, f"{command} {arguments}"])
    except OSError as error:
        raise UserError(f"ssh can't be started ({error.strerror})") from error


Start = Literal["start", "end"]


def replay(
    run: str,
    trial: str | None,
    at: Start,
    fps: int | None = None,
    beside: Sequence[str] = (),
) -> int:
    """Show a recorded run, with `fps` frames a second; the exit status. Raises `UserError`.

    With runs `beside` it the charts are open, with the curves of all of them.
    """
    logs_dir = parse_settings([]).logs_dir
    directory = find_run(run, logs_dir)
    others = [find_run(each, logs_dir) for each in beside]
    require_format(directory)
    opened = None if trial is None else find_trial(directory, trial)
    if not on_terminal():
        raise UserError(f"replay needs a terminal; without one: {to_type('runs', '--json')}")
    from tbtui.show_run import show_run
    from tbtui.ui.runs import ReplayedRun
    from tbtui.ui.services import RecordedRun

    recorded = ReplayedRun(directory)
    clock = recorded.playback
    start, end = recorded.span(opened) if opened else (clock.start, clock.end)
    clock.go_to(end if at == "end" else start)
    clock.playing = at == "start"
    if others:
        # Curves are of all that there is, not up to a clock.
        clock.go_to(clock.end)
        clock.playing = False
    return show_run(RecordedRun(directory), recorded, opened, fps=fps, beside=others)
