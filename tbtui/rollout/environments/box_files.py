"""The box's end of file transfers: every path is resolved inside the box's own root.

Users and groups are as the box's own files name them, read by hand: the C library's look-up would
load plug-ins from the box's own tree.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH106, PTH108, PTH112, PTH114, PTH115, PTH120
# ruff: noqa: PTH123, PTH211
from __future__ import annotations

import sys

assert sys.platform == "linux"

import errno
import os
import stat

_COPY_CHUNK = 1 << 20


class Account:
    def __init__(self, uid: int, gid: int, home: str, groups: list[int]) -> None:
        self.uid, self.gid, self.home, self.groups = uid, gid, home, groups


def _lines(path: str) -> list[list[str]]:
    try:
        with open(path, errors="replace") as file:
            return [line.rstrip("\n").split(":") for line in file.read(1 << 20).splitlines()]
    except OSError:
        return []


def lookup(name: str) -> Account:
    """The user `name`, a uid, `user:group` or `uid:gid`.

    Raises:
        OSError: /etc/passwd or /etc/group of the box has no such name.
    """
    name, _, group = name.partition(":")
    entry = next((e for e in _lines("/etc/passwd") if len(e) >= 6 and name in {e[0], e[2]}), None)
    if entry is None and not name.isdigit():
        raise OSError(errno.EINVAL, f"no user {name!r} in the box")
    uid, gid, home = (int(entry[2]), int(entry[3]), entry[5]) if entry else (int(name), 0, "/")
    known = [e for e in _lines("/etc/group") if len(e) >= 4 and e[2].isdigit()]
    if group:
        found = next((e[2] for e in known if group in {e[0], e[2]}), group)
        if not found.isdigit():
            raise OSError(errno.EINVAL, f"no group {group!r} in the box")
        gid = int(found)
    member = entry[0] if entry else name
    groups = [int(e[2]) for e in known if member in e[3].split(",")]
    return Account(uid, gid, home, [gid, *groups])


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


def is_same(path: str, target: str | None, sources: list[int]) -> bool:
    """Whether `path` is a regular file with the bytes of the open file `sources[0]`, or, without
    one, a symbolic link to `target`."""
    try:
        if not sources:
            return os.path.islink(path) and os.readlink(path) == target
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        found, wanted = os.fstat(file), os.fstat(sources[0])
        if not stat.S_ISREG(found.st_mode) or found.st_size != wanted.st_size:
            return False
        at = 0
        while chunk := os.pread(sources[0], _COPY_CHUNK, at):
            if os.pread(file, len(chunk), at) != chunk:
                return False
            at += len(chunk)
        return True
    finally:
        os.close(file)


def make_executable(path: str) -> None:
    """`chmod +x` of a regular file, but not through a link that waits there."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is no regular file", path)
        os.fchmod(file, stat.S_IMODE(mode) | 0o111)
    finally:
        os.close(file)


def empty(paths: list[str], mode: int) -> list[str]:
    """Makes each path a new, empty directory, whatever it was.

    By process 1 and not by programs of the box, which a process that wants to keep a file there
    could have replaced. Returns what the old contents are called now, for `delete`.
    """
    aside = []
    for path in paths:
        if os.path.lexists(path):
            # One step, however much is in it and whatever goes on in it.
            aside.append(f"{path}.{os.urandom(6).hex()}.old")
            os.rename(path, aside[-1])
        else:
            aside += _make_parents(path)
        os.mkdir(path)
        os.chmod(path, mode)
    return aside


def _make_parents(path: str) -> list[str]:
    """The directories above `path`; what was in their place is called that now."""
    parent, aside = "", []
    for name in path.split("/")[1:-1]:
        parent += f"/{name}"
        if os.path.lexists(parent) and not os.path.isdir(parent):
            aside.append(f"{parent}.{os.urandom(6).hex()}.old")
            os.rename(parent, aside[-1])
        os.makedirs(parent, exist_ok=True)
    return aside


def delete(path: str) -> None:
    """Removes a file or a tree; what can't be removed stays."""
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
        return
    for directory, names, files in os.walk(path, topdown=False):
        for name in (*names, *files):
            inner = f"{directory}/{name}"
            try:
                if name in names and not os.path.islink(inner):
                    os.rmdir(inner)
                else:
                    os.unlink(inner)
            except OSError:
                continue
    os.rmdir(path)


def send_tree(path: str, pipe: int, longest: int) -> None:
    """Streams a file or a tree as frames of `<kind> <mode> <bytes> <length of name>` lines.

    Regular files and directories only: a link, a device or a FIFO means nothing outside the box.
    Of a file of more than `longest` bytes only the beginning and the end are sent; 0: all of it.
    """
    path = os.path.realpath(path)
    if not os.path.isdir(path):
        _send_file(path, "", pipe, longest)
        return
    for directory, names, files in os.walk(path):
        inner = os.path.relpath(directory, path)
        inner = "" if inner == "." else inner + "/"
        for name in names:
            if mode := _mode(f"{directory}/{name}", stat.S_IFDIR):
                _frame(pipe, "d", mode, 0, inner + name)
        for name in files:
            if _mode(f"{directory}/{name}", stat.S_IFREG):
                try:
                    _send_file(f"{directory}/{name}", inner + name, pipe, longest)
                except FileNotFoundError:
                    continue  # the box is alive: its files come and go


def _mode(path: str, kind: int) -> int:
    """The file's mode, if it is of that kind and still there; else 0."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return 0
    return mode if stat.S_IFMT(mode) == kind else 0


def _send_file(path: str, name: str, pipe: int, longest: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    info = os.fstat(source)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    if not longest or info.st_size <= longest:
        _frame(pipe, "f", info.st_mode, info.st_size, name)
        _send_bytes(source, info.st_size, pipe)
    else:
        note = f"\n[... {info.st_size - longest} bytes not kept ...]\n".encode()
        _frame(pipe, "f", info.st_mode, longest + len(note), name)
        _send_bytes(source, longest // 2, pipe)
        _write_all(pipe, note)
        os.lseek(source, info.st_size - (longest - longest // 2), os.SEEK_SET)
        _send_bytes(source, longest - longest // 2, pipe)
    os.close(source)


def _send_bytes(source: int, left: int, pipe: int) -> None:
    while left:
        chunk = os.read(source, min(left, _COPY_CHUNK))
        # A file that shrinks meanwhile is filled up, or the frames after it would be misread.
        chunk = chunk or bytes(min(left, _COPY_CHUNK))
        _write_all(pipe, chunk)
        left -= len(chunk)


def _frame(pipe: int, kind: str, mode: int, size: int, name: str) -> None:
    encoded = os.fsencode(name)
    _write_all(pipe, f"{kind} {mode & 0o777} {size} {len(encoded)}\n".encode() + encoded)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
