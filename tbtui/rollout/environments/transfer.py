"""Writes what a box sends to the host: the names in it are the box's, so they are not trusted.

`tarfile` is not used for this: its extraction filters have let crafted archives out more than once
(CVE-2025-4517 and its siblings), and links, the cause of all of them, mean nothing here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from tbtui.rollout.environments.base import SandboxError

MAX_FILES = 5_000
"""Files and directories that one download leaves on the host: empty ones cost inodes, not bytes."""
_CHUNK = 1 << 20
_LONGEST_NAME = 4096
# What walks over a tree, to remove it too, holds a descriptor and a frame of its stack for each
# level.
_DEEPEST = 100

_log = logging.getLogger(__name__)


class DownloadRefusedError(SandboxError):
    """What a box sends is more than may come, whatever is in the box makes it so."""


def make_directory(path: Path) -> None:
    """Make a directory of the host that something is copied into, with those above it."""
    path.mkdir(parents=True, exist_ok=True)


def receive(
    pipe: BinaryIO,
    target: Path,
    *,
    max_bytes: int,
    max_files: int = MAX_FILES,
    overwrite: bool = True,
    note: Callable[[str], None] = _log.warning,
) -> int:
    """Writes the files a box streams (`box_server._send_tree`) at or below `target`.

    Blocking: call it in a thread. A frame with an empty name is `target` itself.

    Args:
        pipe: The stream, to its end.
        target: An existing directory, or for a single file the file to write.
        max_bytes: In total; a sparse file counts with its full length.
        max_files: Files and directories in total; what comes after them is left out, and so is what
            lies more than 100 directories deep.
        overwrite: Whether a file that exists already is replaced or left as it is.
        note: Called with a line on what was left out.

    Returns:
        Number of files written.

    Raises:
        DownloadRefusedError: more than `max_bytes` came.
        SandboxError: the stream is not what it should be.
    """
    files = entries = received = left_out = 0
    while header := pipe.readline(_LONGEST_NAME):
        kind, mode, size, name = _frame(pipe, header)
        entries += 1
        received += size
        if received > max_bytes:
            raise DownloadRefusedError(f"download refused: more than {max_bytes} bytes")
        if entries - left_out > max_files or name.count("/") >= _DEEPEST:
            left_out += 1
            _copy(pipe, size, None)
            continue
        with ExitStack() as stack:
            directory, leaf = _parent(stack, target, name)
            if kind == "d":
                _directory(directory, leaf)
                continue
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            flags |= os.O_TRUNC if overwrite else os.O_EXCL
            try:
                descriptor = os.open(leaf, flags, mode & 0o755 | 0o600, dir_fd=directory)
            except FileExistsError:
                _copy(pipe, size, None)
                continue
            stack.callback(os.close, descriptor)
            _copy(pipe, size, descriptor)
            files += 1
    if left_out:
        note(f"{target}: {left_out} of {entries} files and directories left out")
    return files


def _frame(pipe: BinaryIO, header: bytes) -> tuple[str, int, int, str]:
    try:
        kind, mode, size, length = header.decode().split()
        numbers = int(mode), int(size), int(length)
    except ValueError as error:
        raise SandboxError(f"download: not a frame: {header[:80]!r}") from error
    if kind not in {"d", "f"} or min(numbers) < 0 or numbers[2] > _LONGEST_NAME:
        raise SandboxError(f"download: not a frame: {header[:80]!r}")
    return kind, numbers[0], numbers[1], os.fsdecode(pipe.read(numbers[2]))


def _parent(stack: ExitStack, target: Path, name: str) -> tuple[int, str]:
    """A descriptor of the directory to write in, every step of the way without following links."""
    parts = name.split("/") if name else []
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise SandboxError(f"download: not a relative path: {name!r}")
    base = target if parts else target.parent
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    directory = os.open(base, flags)
    for part in parts[:-1]:
        try:
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=directory)
        finally:
            os.close(directory)
        directory = inner
    stack.callback(os.close, directory)
    return directory, parts[-1] if parts else target.name


def _directory(directory: int, leaf: str) -> None:
    try:
        os.mkdir(leaf, 0o755, dir_fd=directory)
    except FileExistsError:
        return


def _copy(pipe: BinaryIO, size: int, descriptor: int | None) -> None:
    while size:
        chunk = pipe.read(min(size, _CHUNK))
        if not chunk:
            raise SandboxError("download: the stream ends early")
        size -= len(chunk)
        view = memoryview(chunk)
        while descriptor is not None and view:
            view = view[os.write(descriptor, view) :]
