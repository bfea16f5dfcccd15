"""Where live runs are found: their control sockets, and the links that name them.

A control socket is bound and reached however long the run directory's path is:

The kernel takes at most 107 bytes of path. A directory is opened instead, and the socket named
below its descriptor in /proc; where there is no /proc, the path itself has to do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tbtui.journal.rundir import RunDirectory, is_live
from tbtui.paths import state_dir

_DESCRIPTORS = Path("/proc/self/fd")
_BACKLOG = 16


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 from its first moment.

    One that is there is replaced in one step: the caller has made sure that it is dead.

    Raises:
        OSError: it can't be made there.
    """
    new = f"{path.name}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before it has a name, so that nobody ever finds it open to others.
        os.fchmod(listener.fileno(), 0o600)
        with _reached(path.parent) as directory:
            with contextlib.suppress(FileNotFoundError):
                (directory / new).unlink()
            listener.bind(str(directory / new))
            listener.listen(_BACKLOG)
            (directory / new).rename(directory / path.name)
    except BaseException:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def connect(path: Path) -> socket.socket:
    """A socket that is connected with the one at `path`.

    Raises:
        OSError: nobody listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reached(path.parent) as directory:
            connection.connect(str(directory / path.name))
    except BaseException:
        connection.close()
        raise
    connection.setblocking(False)
    return connection


@contextlib.contextmanager
def _reached(directory: Path) -> Iterator[Path]:
    """A short path of `directory`."""
    if not _DESCRIPTORS.is_dir():
        yield directory
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _DESCRIPTORS / str(descriptor)
    finally:
        os.close(descriptor)


log = logging.getLogger(__name__)


@contextlib.contextmanager
def registered(run: RunDirectory) -> Iterator[None]:
    """List the run among `live_runs` while the context lasts, where its directory allows that."""
    link = _directory() / f"{os.getpid()}-{run.name}"
    try:
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.unlink(missing_ok=True)
        link.symlink_to(run.path)
    except OSError as error:
        log.warning("%s: can't be written (%s); only its path names this run", link, error)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            link.unlink(missing_ok=True)


def live_runs() -> list[RunDirectory]:
    """The live runs, by name."""
    found = {}
    for link in _links():
        run = RunDirectory(link.resolve())
        if is_live(run):
            # One that was killed and goes on in another process has left a second link.
            found[run.path] = run
        elif not _alive(link):
            with contextlib.suppress(OSError):
                link.unlink(missing_ok=True)
    return sorted(found.values(), key=lambda run: run.name)


def _links() -> list[Path]:
    try:
        return [link for link in _directory().iterdir() if link.is_symlink()]
    except OSError:
        return []


def _alive(link: Path) -> bool:
    """Whether the process that made it still lives: a run that begins has no lock yet."""
    pid, _, _ = link.name.partition("-")
    return pid.isdigit() and Path(f"/proc/{pid}").exists()


def _directory() -> Path:
    return state_dir() / "live"
