"""`tbtui attach`: the app on a run of another process, on this machine or behind ssh.

Leaving it leaves the run alone. Several people may look at once; one of them has the controls
(`tbtui.engines.control.controls`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import shlex
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import typer

from tbtui.engines.control.client import ControlClient, ControlError
from tbtui.engines.control.protocol import ControlsChanged, Ended, Welcome
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.rundir import RunDirectory, writer

_REFUSED = 2
_DETACHED = RunEnd("interrupted", "detached; the run goes on")
_NOT_YET = "joining the run"


@dataclass(frozen=True, slots=True)
class Place:
    """A run on another machine."""

    host: str
    port: int | None
    run: str


class AttachedRun:
    """A `tbtui.ui.host.RunHost` at the other end of a run's control socket.

    A thread of its own talks to the run; every method may be called from any thread.
    """

    outlives = True

    def __init__(
        self, directory: RunDirectory, name: str = "", *, take: bool = True, exclusive: bool = False
    ) -> None:
        """
        Args:
            name: of who looks; empty: the user.
            take: the controls, if nobody has them; else only look.
            exclusive: take them from whoever has them, and keep scripts out too.
        """
        self.directory = directory
        self._name = name
        self._take = take or exclusive
        self._exclusive = exclusive
        self._read_only = _NOT_YET
        self._client: ControlClient | None = None
        self._end: concurrent.futures.Future[RunEnd] = concurrent.futures.Future()
        self._loop = asyncio.new_event_loop()
        self._leaving = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="attached", daemon=True)

    @property
    def read_only(self) -> str:
        return self._read_only

    def start(self) -> None:
        self._thread.start()

    def submit(self, command: Command) -> None:
        self._call(lambda: self._submit(command))

    def take_controls(self) -> None:
        self._call(self._take_now)

    def interrupt(self) -> None:
        """Detach: the run goes on."""
        self._call(self._leaving.set)

    async def ended(self) -> RunEnd:
        # Whoever gives the wait up would cancel the future itself.
        return await asyncio.shield(asyncio.wrap_future(self._end))

    def _take_now(self) -> None:
        if self._client is not None and self._read_only:
            self._client.send_take()

    def _submit(self, command: Command) -> None:
        if self._client is not None:
            self._client.send(command)

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                end = runner.run(self._attached())
        except BaseException as error:
            self._end.set_exception(error)
            raise
        self._end.set_result(end)

    async def _attached(self) -> RunEnd:
        leaving = asyncio.create_task(self._leaving.wait())
        following = asyncio.create_task(self._follow())
        await asyncio.wait((leaving, following), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            leaving.cancel()
            return following.result()
        following.cancel()
        return _DETACHED

    async def _follow(self) -> RunEnd:
        """Until the run ends."""
        try:
            client, welcome = await ControlClient.open(self.directory, self._name, viewer=True)
        except ControlError as error:
            return RunEnd("failed", str(error))
        self._client = client
        try:
            if not self._take or welcome.holder:
                self._controls(welcome)
            if self._take:
                client.send_take(if_free=not self._exclusive, exclusive=self._exclusive)
            while (answer := await client.receive()) is not None:
                match answer:
                    case ControlsChanged():
                        self._controls(answer)
                    case Ended(status, reason):
                        return _end(status, reason)
                    case _:
                        pass
        except ControlError as error:
            return RunEnd("failed", str(error))
        finally:
            self._client = None
            client.close()
        return RunEnd(
            "failed",
            f"the run's process is gone; tbtui run --resume {self.directory.path} goes on with it",
        )

    def _controls(self, now: Welcome | ControlsChanged) -> None:
        if now.yours:
            self._read_only = ""
        else:
            self._read_only = f"{now.holder or 'nobody'} has the controls"

    def _call(self, what: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)


def _end(status: str, reason: str) -> RunEnd:
    match status:
        case "finished" | "failed" | "interrupted" | "refused":
            return RunEnd(status, reason)
        case _:
            return RunEnd("failed", f"{status}: {reason}")


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
    from tbtui.trial_tools import make_trial_tools
    from tbtui.ui.app import run_app

    gc.enable()
    return run_app(
        AttachedRun(directory, name, take=not look, exclusive=exclusive),
        trial_tools=make_trial_tools,
        fps=fps,
    )


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
