"""Binding and reaching a run's control socket, however long the run directory's path is.

The kernel takes at most 107 bytes of path. A directory is opened instead, and the socket named
below its descriptor in /proc; where there is no /proc, the path itself has to do.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_BACKLOG = 16


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 from its first moment.

    One that is there is replaced in one step: whoever binds has made sure that it is dead.

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
