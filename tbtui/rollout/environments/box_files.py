"""The box's end of file transfers: every path is resolved inside the box's own root."""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH114, PTH120, PTH211
from __future__ import annotations

import errno
import os
import stat

from tbtui.rollout.environments.box_accounts import lookup

_COPY_CHUNK = 1 << 20


def put(path: str, mode: int, owner: str | None, source: int) -> None:
    """A complete file under its name, or nothing: never through a link that waits there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(path) and not os.path.islink(path):
        raise IsADirectoryError(errno.EISDIR, "is a directory", path)
    partial = f"{path}.{os.urandom(6).hex()}.partial"
    target = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    try:
        while os.sendfile(target, source, None, _COPY_CHUNK):
            pass
        if owner is not None:
            account = lookup(owner)
            os.fchown(target, account.uid, account.gid)
        os.fchmod(target, mode)
        os.rename(partial, path)
    except OSError:
        os.unlink(partial)
        raise
    finally:
        os.close(target)


def link(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(target, path)


def send_tree(path: str, pipe: int) -> None:
    """Streams a file or a tree as frames of `<kind> <mode> <bytes> <length of name>` lines.

    Regular files and directories only: a link, a device or a FIFO means nothing outside the box.
    """
    path = os.path.realpath(path)
    if not os.path.isdir(path):
        _send_file(path, "", pipe)
        return
    for directory, names, files in os.walk(path):
        inner = os.path.relpath(directory, path)
        inner = "" if inner == "." else inner + "/"
        for name in names:
            if not os.path.islink(f"{directory}/{name}"):
                _frame(pipe, "d", os.lstat(f"{directory}/{name}").st_mode, 0, inner + name)
        for name in files:
            if stat.S_ISREG(os.lstat(f"{directory}/{name}").st_mode):
                _send_file(f"{directory}/{name}", inner + name, pipe)


def _send_file(path: str, name: str, pipe: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    info = os.fstat(source)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    _frame(pipe, "f", info.st_mode, info.st_size, name)
    left = info.st_size
    while left:
        chunk = os.read(source, min(left, _COPY_CHUNK))
        # A file that shrinks meanwhile is filled up, or the frames after it would be misread.
        chunk = chunk or bytes(min(left, _COPY_CHUNK))
        _write_all(pipe, chunk)
        left -= len(chunk)
    os.close(source)


def _frame(pipe: int, kind: str, mode: int, size: int, name: str) -> None:
    encoded = os.fsencode(name)
    _write_all(pipe, f"{kind} {mode & 0o777} {size} {len(encoded)}\n".encode() + encoded)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
