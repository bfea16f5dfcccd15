"""Control sockets, bound and reached however long the run directory's path is.

The kernel takes at most 107 bytes of path. A directory is opened instead, and the socket named
below its descriptor in /proc; where there is no /proc, below a link in a directory of our own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_BACKLOG = 16


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 from its first moment.

    One that is there is replaced in one step: the caller has made sure that it is dead.

    Raises:
        OSError: it can't be made there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Nobody ever finds it open to others: a directory of this user's alone has it before. (A
        # Mac can't change the mode of a socket that has no name.)
        with tempfile.TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as private:
            with _reached(Path(private)) as directory:
                new = directory / path.name
                listener.bind(str(new))
                new.chmod(0o600)
                listener.listen(_BACKLOG)
            (Path(private) / path.name).rename(path)
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
        with tempfile.TemporaryDirectory() as short:
            link = Path(short) / "d"
            link.symlink_to(directory.absolute())
            yield link
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _DESCRIPTORS / str(descriptor)
    finally:
        os.close(descriptor)
